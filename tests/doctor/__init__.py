"""Tests of `autolaunch/doctor`."""
