"""`dovecote consume`: run a consumer, and decide about the records that it gave up."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {"run": "run:run", "dead": "dead:dead", "skip": "skip:skip"}


consume = App("consume", "Hand events from Kafka to a function of yours.", cls=_Commands)
