"""`autolaunch doctor`: what was found on this machine, what is missing, and what mends it."""
