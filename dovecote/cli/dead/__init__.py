"""`dovecote dead`: the dead letters of every part, and parked events, in one list."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "list": "listing:list_",
        "show": "listing:show",
        "requeue": "deciding:requeue",
        "drop": "deciding:drop",
    }


dead = App("dead", "See, requeue or drop what any part gave up.", cls=_Commands)
