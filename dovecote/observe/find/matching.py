"""Pick the messages of a client that a query means."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from dedup.retries.letter import resolved, resolved_offset
from dovecote.observe.find.rules.facts import Role, written_at
from dovecote.observe.find.rules.query import Query
from outbox.envelope import ID, RESOLVES, Record
from outbox.kafka import headers_of


def matcher(query: Query, wanted: set[str]) -> Callable[[Role, Any], bool]:
    """Return what finds the records of a query, and those that tell the fate of its letters."""
    names = {each.encode(errors="surrogatepass") for each in wanted}
    letters: set[tuple[str, int, int | None]] = set()

    def is_it(message: Any) -> bool:  # noqa: ANN401  # confluent-kafka has no types of its own
        if query.key is not None:
            return bool(message.key() == query.key)
        return any(name == ID and value in names for name, value in headers_of(message))

    def matches(role: Role, message: Any) -> bool:  # noqa: ANN401  # as above
        if role == "dead":
            for name, value in headers_of(message):
                if name == RESOLVES:
                    place = message.topic(), message.partition(), resolved_offset(value)
                    return place in letters
        if not is_it(message):
            return False
        if role == "dead":
            letters.add((message.topic(), message.partition(), message.offset()))
        return True

    return matches


def fates(records: Sequence[Record]) -> dict[tuple[str, int, int], tuple[str, datetime | None]]:
    """Return what became of dead letters, by their places."""
    found: dict[tuple[str, int, int], tuple[str, datetime | None]] = {}
    for record in records:
        at = resolved(record)
        if at is not None:
            value = dict(record.headers).get(RESOLVES) or b""
            fate = value.partition(b" ")[2].decode(errors="replace")
            found[record.topic, *at] = fate, written_at(record)
    return found
