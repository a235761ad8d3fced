"""Dovecote's own tools: its command line, `push`, the development stack and the demonstration."""

from importlib.metadata import version


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: our packages run without being installed, too."""
    if name == "__version__":
        return version("dovecote")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
