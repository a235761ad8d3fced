"""`dovecote relay`: run a relay, and look after its outbox."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "run": "run:run",
        "status": "status:status",
        "doctor": "doctor:doctor",
        "parked": "parked:parked",
        "reshard": "reshard:reshard",
        "reconcile": "reconcile:reconcile",
    }


relay = App("relay", "Publish an outbox to Kafka, and look after it.", cls=_Commands)
