"""Tests of `autolaunch/choose`."""
