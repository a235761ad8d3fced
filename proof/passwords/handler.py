"""The handler of the consumer under proof: an effect for each event."""

import psycopg

from outbox import Event


def handle(event: Event, tx: psycopg.Connection) -> None:
    """Note the event, in the transaction of the inbox."""
    tx.execute("INSERT INTO public.effects (id) VALUES (%s)", [event.id])
