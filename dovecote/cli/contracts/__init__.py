"""`dovecote contracts`: export, check and describe the contracts of event classes."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "export": "export:export",
        "check": "check:check",
        "asyncapi": "describe:asyncapi",
    }


contracts = App("contracts", "Export and check schemas of events.", cls=_Commands)
