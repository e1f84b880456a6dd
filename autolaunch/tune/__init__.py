"""A race from what it stands on to its report: what engines load, what they showed, what is learned of it."""
