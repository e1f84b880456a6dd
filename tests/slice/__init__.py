"""Tests of `autolaunch/slice`."""
