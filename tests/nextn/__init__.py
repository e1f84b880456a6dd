"""Tests of the plans for heads that predict several tokens."""
