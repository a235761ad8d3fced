"""`dovecote init`: install or upgrade what Dovecote needs in Postgres, also without typer."""

from collections.abc import Mapping

PARTS: Mapping[str, str] = {"outbox": "outbox:outbox", "inbox": "inbox:inbox", "push": "push:push"}
"""The commands: for each, a module here and the function in it."""
