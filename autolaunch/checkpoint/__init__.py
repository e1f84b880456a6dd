"""A model folder, cache entry or hub id into what it means, from JSON and headers only."""
