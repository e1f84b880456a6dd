"""A race into one candidate, and the words for it."""
