"""argv to a request: which SGLang is meant, which flags it has, and which of them the user pinned."""
