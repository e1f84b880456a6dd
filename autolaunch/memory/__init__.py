"""What a model takes of a GPU: weights, cache of keys and values, and what SGLang keeps free."""
