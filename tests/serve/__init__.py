"""Tests of `autolaunch/serve`."""
