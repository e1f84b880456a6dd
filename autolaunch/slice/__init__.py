"""A checkpoint into its first layers at full width, as a checkpoint of their own that loads in seconds."""
