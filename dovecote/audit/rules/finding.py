"""The findings of an auditor, each with its places and with what to do."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "lost", "doubled", "disordered", "late", "altered", "misplaced", "phantom", "unhandled"
]

ADVICE: dict[Kind, str] = {
    "lost": (
        "the relay passed it and no record of it is readable: keep the row, and publish it again "
        "with `write` under the same id; then look for a deletion in the topic, or for another "
        "relay under this name"
    ),
    "doubled": (
        "consumers with an inbox or `exact` skip the second record; look for a second relay with "
        "another `name`, for `at_least_once`, and for readers that are not `read_committed`"
    ),
    "disordered": (
        "consumers saw the key's events in another order than they were written: check that its "
        "writers take the key's lock before they write, and that one relay alone publishes"
    ),
    "late": (
        "consumers saw it later than `late` allows: see the relay's lag and log at that time, or "
        "raise `late`"
    ),
    "altered": (
        "the record has this id and another key or value than the row: look for a producer that "
        "uses the ids of others, or for a proxy that rewrites records"
    ),
    "misplaced": (
        "the record is not in the partition of its key: look for a producer with another "
        "partitioner; if the topic got more partitions, set `partitions_since` to that time"
    ),
    "phantom": (
        "no outbox has an event with this id: look for a writer that passes the outbox by; if the "
        "topic has other producers, name their sources in `foreign_sources`, or set "
        '`foreign = "ignore"`'
    ),
    "unhandled": (
        "the consumer's group went past the record, and neither its inbox nor its retry topics or "
        "dead letters have it: handle the event again, and look for a reset of the group's "
        "offsets or a deleted row"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise; a finding of the same kind, part, topic and event is one."""

    kind: Kind
    part: str
    """`outbox/NAME` or `consumer/NAME`."""
    topic: str
    id: str
    key: str | None
    at: int
    """When the event was committed or published, in milliseconds since 1970."""
    places: tuple[str, ...]
    """Rows as `schema.events/POSITION`, records as `topic/partition/offset`."""
    reason: str
    count: int = 1

    @property
    def name(self) -> str:
        """The name that it shares with another of the same event."""
        which = "" if self.kind == "late" else f" {self.id}"
        return f"{self.kind} {self.part} {self.topic}{which}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, with what to do."""
        return {**asdict(self), "places": list(self.places), "do": ADVICE[self.kind]}


def shown_key(key: bytes | None) -> str | None:
    """Return a key as text; bytes that are none as hex, and no more than 200 characters."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "0x" + key.hex()
    return text if text.isprintable() and len(text) <= 200 else repr(text)[:200]  # noqa: PLR2004  # a bound of the text
