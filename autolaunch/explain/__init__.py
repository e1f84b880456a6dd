"""Shows a person, or a program, what autolaunch knows of one start and why; nothing is decided here."""
