"""A record as the consumer passes it to handlers: Kafka's fields, and the event in it."""

from collections.abc import Callable

from dedup.rules import identity as identities
from dedup.rules.claim import Claim
from dedup.rules.identity import Identity
from dedup.rules.policies import decode
from outbox import envelope
from outbox.event import Event

Decode = Callable[[envelope.Record], Event]
"""Decodes a Kafka record into the event that filters and handlers see."""


class Record(envelope.Record):
    """
    One record of a partition: topic, partition, offset, timestamp, key, value and headers.

    The event is decoded once, on first use: policies leave most duplicates unread.
    """

    decode: Decode = staticmethod(decode.as_json)

    claim: Claim | None = None
    """The claim of its assignment, if the inbox needs one."""

    # Not cached_property: until Python 3.12 all records share its lock, and threads queue for it.

    @property
    def event(self) -> Event:
        """
        The event that the record carries.

        Raises:
            DovecoteError: the record cannot be read; the message says why.
        """
        kept = self.__dict__
        event: Event | None = kept.get("event")
        if event is None:
            event = kept["event"] = type(self).decode(self)
        return event

    @property
    def identity(self) -> Identity:
        """Its source, id and round: records with an equal one are duplicates of each other."""
        kept = self.__dict__
        if "identity" not in kept:
            kept["identity"] = identities.identity(self)
        identity: Identity = kept["identity"]
        return identity

    @property
    def place(self) -> str:
        """Its position, as logs and dead letters name it."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def size_of(record: envelope.Record) -> int:
    """Return the bytes of a record's key and value."""
    key, value = record.key, record.value
    return (0 if key is None else len(key)) + (0 if value is None else len(value))


def read_with(decoder: Decode) -> type[Record]:
    """Return a class of records whose events `decoder` reads."""
    # On the class and not on each record: there are tens of thousands a second.
    return type("Record", (Record,), {"decode": staticmethod(decoder), "__module__": __name__})
