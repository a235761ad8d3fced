"""Dovecote's own tools: its command line, `push`, the development stack and the demonstration."""

from importlib.metadata import version

__version__ = version("dovecote")
