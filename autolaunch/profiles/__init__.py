"""Profiles: what was measured once, kept as data, matched against a start, and believed as far as it says."""
