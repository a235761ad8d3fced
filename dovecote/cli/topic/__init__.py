"""`dovecote topic`: list, create and show topics, and read the events in them."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "list": "topics:list_",
        "create": "topics:create",
        "show": "topics:show",
        "tail": "tail:tail",
    }


topic = App("topic", "List, create and read topics.", cls=_Commands)
