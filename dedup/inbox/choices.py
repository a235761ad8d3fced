"""The choices that settings of an inbox have, without its driver, which takes long to load."""

from typing import Literal, TypeAlias

DEFAULT_SCHEMA = "inbox"

Prepare: TypeAlias = Literal["auto", "never"]
"""Whether the driver prepares statements on the server: unless a pooler shares them, or never."""
