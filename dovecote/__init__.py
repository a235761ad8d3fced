"""Dovecote's own tools: its command line, `push`, the development stack and the demonstration."""


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: our packages run without being installed, too."""
    if name == "__version__":
        from importlib.metadata import version  # slow, and rarely asked for

        return version("dovecote")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
