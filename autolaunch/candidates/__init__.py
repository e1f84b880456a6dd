"""The original command and the full sets of launch options that compete with it."""
