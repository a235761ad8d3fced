"""Make copies of records to set aside: for a retry topic, or as dead letters."""

import re
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from dedup.rules.identity import Identity
from dedup.rules.policies.wording import plain
from outbox import envelope
from outbox.envelope import Delivery, Pair, Record
from outbox.errors import DovecoteError, InvalidEvent

# Kafka's largest number has 19 digits. Python converts none of 5,000.
_NUMBER = re.compile("[0-9]{1,19}")

# A header must not make a record too large for the very topic that collects failed records.
_ERROR_CHARACTERS = 2_000

# The head of a batch with that of its record, and the lengths of a header: as bytes, at most.
_OF_BATCH, _OF_HEADER = 61 + 21, 10

# Headers that only records of a dead-letter topic carry. On a copy of something else, they would
# hide the letter, or mark it as one without its value. Headers that could not be read are nowhere.
_OF_LETTERS = frozenset({envelope.RESOLVES, envelope.WITHOUT_VALUE, envelope.UNREAD})


class Unwritable(DovecoteError):
    """The topic will never take this copy."""


class Copy(NamedTuple):
    """
    Key, value and headers of a record that is set aside.

    Its timestamp is to be the time of writing: brokers delete by it, and a record that is old when
    it fails must not be gone before somebody looks.
    """

    key: bytes | None
    value: bytes | None
    headers: list[Pair]


def without(error: str, before: str | None) -> str:
    """Return the reason of a letter that lacks its value because of `error`."""
    return f"without its value, as {error}" + (f"; before that: {before}" if before else "")


def refused(topic: str, copy: Copy, limit: int | None, told: str) -> str:
    """Return why a topic does not take a copy that is too large, and which limit is too small."""
    size = size_of(copy)
    if limit is None:
        return (
            f"topic {topic!r} does not take its {size:,} bytes ({told}); raise the topic's "
            "max.message.bytes"
        )
    if size <= limit:
        return (
            f"topic {topic!r} takes {limit:,} bytes (max.message.bytes), but not these {size:,} "
            f"({told}); raise the brokers' socket.request.max.bytes, or `message.max.bytes` in "
            "`[kafka]`"
        )
    return (
        f"topic {topic!r} takes {limit:,} bytes, and these are {size:,}; raise the topic's "
        "max.message.bytes"
    )


def size_of(copy: Copy) -> int:
    """Return the size of a copy as a broker measures it, if nothing is compressed."""
    # The name of headers that could not be read is no text.
    headers = sum(
        _OF_HEADER + len(name.encode(errors="surrogateescape")) + len(value or b"")
        for name, value in copy.headers
    )
    return _OF_BATCH + len(copy.key or b"") + len(copy.value or b"") + headers


def retried(record: Record, identity: Identity, *, now: int, due: int, error: str | None) -> Copy:
    """
    Return the copy of `record` that goes to a retry topic; `error` None: it has not failed.

    Raises:
        InvalidEvent: its headers or rounds cannot be read, so it could go round for ever.
    """
    envelope.require_readable(record)
    state = envelope.retried(
        record, now=now, not_before=due, error=cut(error or ""), failed=error is not None
    )
    return _copy(record, identity, replace(state, error=None) if error is None else state)


def returned(record: Record, identity: Identity) -> Copy:
    """
    Return the copy of `record` that comes back as it is: without an attempt, a round or a wait.

    Raises:
        InvalidEvent: its headers or rounds cannot be read, so it could go round for ever.
    """
    envelope.require_readable(record)
    before = envelope.delivery(record)
    state = replace(before, not_before=None, origin=before.origin or place(record))
    return _copy(record, identity, state)


def dead(record: Record, identity: Identity, *, now: int, error: str) -> Copy:
    """Return the dead letter of `record`: itself, with its origin and why it is dead."""
    before = delivery(record)
    state = replace(
        before,
        first_seen=before.first_seen or now,
        not_before=None,
        origin=before.origin or place(record),
        error=cut(error),
    )
    headers = [pair for pair in record.headers if pair[0] not in _OF_LETTERS]
    return _copy(record._replace(headers=headers), identity, state)


class Left(NamedTuple):
    """Where the value is that a dead letter lacks."""

    place: tuple[str, int, int] | None
    """Topic, partition and offset; None: no topic has it."""
    size: int
    sha256: str

    def encode(self) -> bytes:
        """Return it as the value of the header `WITHOUT_VALUE`."""
        where = "-" if self.place is None else "/".join(map(str, self.place))
        return f"{where} {self.size} {self.sha256}".encode()

    def is_in(self, record: Record) -> bool:
        """Return whether a record has the value."""
        return left(None, record.value)[1:] == self[1:]


def left(place: tuple[str, int, int] | None, value: bytes | None) -> Left:
    """Return where a value is, with its size and hash."""
    found = value or b""
    return Left(place, len(found), sha256(found).hexdigest())


def left_of(header: bytes) -> Left | None:
    """Return what `Left.encode` wrote; None for anything else."""
    where, _, rest = header.decode(errors="replace").partition(" ")
    size, _, digest = rest.partition(" ")
    topic, *numbers = where.rsplit("/", 2)
    if not (_NUMBER.fullmatch(size) and digest):
        return None
    if len(numbers) != 2 or not all(map(_NUMBER.fullmatch, numbers)):  # noqa: PLR2004  # partition and offset
        return Left(None, int(size), digest)
    return Left((topic, int(numbers[0]), int(numbers[1])), int(size), digest)


def emptied(record: Record, *, now: int, error: str, lacks: Left | None = None) -> Copy:
    """
    Return the dead letter of a record that no topic takes.

    It lacks the value, headers, key or id that made it so. It says where they are: at `lacks`, by
    default where the record was read.
    """
    lacks = lacks or left(record[:3], record.value)
    source, id_ = known(record)
    before = delivery(record)
    state = replace(
        before,
        origin=before.origin if _fits(before.origin) else None,
        group=before.group if _fits(before.group) else None,
        error=None,
    )
    if not (_fits(source) and _fits(id_)):
        source, id_ = record.topic, envelope.place(record)
    headers = [
        (envelope.ID, id_.encode()),
        (envelope.SOURCE, source.encode()),
        *envelope.with_delivery([], state),
    ]
    rest = record._replace(
        key=record.key if _fits(record.key) else None, value=None, headers=headers
    )
    copy = dead(rest, Identity(source, id_), now=now, error=error)
    return copy._replace(headers=[*copy.headers, (envelope.WITHOUT_VALUE, lacks.encode())])


def requeued(letter: Record) -> Copy:
    """
    Return the copy of a dead letter that is handled again.

    Its attempts start over, in a new round; its origin stays.

    Raises:
        InvalidEvent: its headers cannot be read, so the copy would lack them.
    """
    envelope.require_readable(letter)
    before = delivery(letter)
    state = Delivery(round=before.round + 1, origin=before.origin)
    return Copy(letter.key, letter.value, envelope.with_delivery(letter.headers, state))


def restored(letter: Record, whole: Record) -> Record:
    """Return a dead letter with the key, value and headers of `whole`, which it lacks."""
    headers = [pair for pair in whole.headers if pair[0] not in _OF_LETTERS]
    said = {name for name, value in headers if value}
    pairs = zip((envelope.SOURCE, envelope.ID), known(letter), strict=True)
    headers += [(name, text.encode()) for name, text in pairs if name not in said]
    return letter._replace(
        key=whole.key, value=whole.value, headers=envelope.with_delivery(headers, delivery(letter))
    )


def delivery(record: Record) -> Delivery:
    """Return the history of `record`; empty if it cannot be read."""
    try:
        return envelope.delivery(record)
    except InvalidEvent:
        return Delivery()


def known(record: Record) -> tuple[str, str]:
    """Return the source and the id of the event; its place if they cannot be read."""
    try:
        return envelope.identity(record)
    except InvalidEvent:
        return record.topic, envelope.place(record)


def place(record: Record) -> str:
    """Return the position of `record`."""
    return f"{record.topic}/{record.partition}/{record.offset}"


def cut(error: str) -> str:
    """Return `error` as text that fits into a header."""
    return plain(error)[:_ERROR_CHARACTERS]


def _fits(text: str | bytes | None) -> bool:
    return text is None or len(text) <= _ERROR_CHARACTERS


def _copy(record: Record, identity: Identity, state: Delivery) -> Copy:
    # A copy has another topic and place, so its headers say what these said of its identity.
    headers = envelope.with_delivery(record.headers, state)
    said = {name for name, value in headers if value}
    lacking = [
        (name, text.encode())
        for name, text in ((envelope.ID, identity.id), (envelope.SOURCE, identity.source))
        if name not in said
    ]
    return Copy(record.key, record.value, lacking + headers)
