"""`dovecote init`: install or upgrade what Dovecote needs in Postgres."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {"outbox": "outbox:outbox", "inbox": "inbox:inbox", "push": "push:push"}


init = App("init", "Install or upgrade what Dovecote needs in Postgres.", cls=_Commands)
