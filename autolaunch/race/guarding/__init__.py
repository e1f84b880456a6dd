"""What a guard looks at and clears away; it runs by path, and nothing else of autolaunch is imported here."""
