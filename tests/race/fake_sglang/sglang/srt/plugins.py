"""Plugins of the fake SGLang: it says that they were loaded, which must come before the arguments."""

LOADED: list[str] = []


def load_plugins() -> None:
    """Say so."""
    LOADED.append("plugins")
