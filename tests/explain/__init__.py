"""Tests of `autolaunch explain`."""
