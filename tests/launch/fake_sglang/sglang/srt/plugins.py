"""Plugins of the fake SGLang: none."""


def load_plugins() -> None:
    """Load nothing."""
