"""`dovecote push`: deliver Kafka to HTTP endpoints, and manage the subscriptions."""

from typing import ClassVar

from dovecote.cli.commands import App, Lazy


class _Commands(Lazy):
    places: ClassVar = {
        "serve": "serve:serve",
        "subscribe": "subscriptions:subscribe",
        "list": "subscriptions:list_",
        "show": "looking:show",
        "attempts": "looking:attempts",
        "update": "looking:update",
        "pause": "subscriptions:pause",
        "resume": "subscriptions:resume",
        "delete": "subscriptions:delete",
        "replay": "subscriptions:replay",
        "dead": "dead:dead",
        "skip": "subscriptions:skip",
        "audit": "audit:audit",
        "schema": "subscriptions:schema",
        "key": "credentials:key",
        "token": "credentials:token",
    }


push = App("push", "Deliver events from Kafka to HTTP endpoints.", cls=_Commands)
