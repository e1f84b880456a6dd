"""Tests of the estimate of memory."""
