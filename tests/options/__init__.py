"""Tests of `autolaunch/options`."""
