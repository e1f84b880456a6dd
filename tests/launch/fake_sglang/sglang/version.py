"""A version that no snapshot knows."""

__version__ = "0.0.0.dev7"
