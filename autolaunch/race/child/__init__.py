"""Programs that run outside the launcher, by path, with nothing of autolaunch importable."""
