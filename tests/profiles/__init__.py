"""Tests of profiles: what they are, where they lie, when they hold."""
