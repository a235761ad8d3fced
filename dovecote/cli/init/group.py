"""`dovecote init`, as a group of commands of typer."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy
from dovecote.cli.init import PARTS


class _Commands(Lazy):
    places: ClassVar = PARTS


init = App("init", "Install or upgrade what Dovecote needs in Postgres.", cls=_Commands)
