"""Dead letters for operators: their content, how to select them, and where they go."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

from dedup.retries import copies
from dedup.rules.identity import Identity
from outbox import envelope
from outbox.envelope import Pair, Record
from outbox.errors import BadSettings, InvalidEvent
from outbox.timestamps import milliseconds

Action: TypeAlias = Literal["requeued", "dropped"]

_MOST_NAME = 200
# Kafka's largest offset has 19 digits. Python converts none of 5,000.
_OFFSET = re.compile(rb"[0-9]{1,19}")

At: TypeAlias = tuple[int, int]
"""Partition and offset in the dead-letter topic."""


class Letter(NamedTuple):
    """A dead letter, without its value."""

    at: At
    id: str
    source: str
    key: bytes | None
    reason: str
    attempts: int
    origin: str
    group: str | None
    """The consumer group that gave it up; None: it does not say."""
    died_at: datetime
    """When it was written."""
    size: int
    without_value: bool
    """The topic would not have taken it whole."""
    left: copies.Left | None
    """Where the value is that it lacks; None: it has one, or does not say."""
    type: str | None = None
    """The event's type; None: it cannot be read."""

    @property
    def name(self) -> str:
        """`id@source`, where the id alone may be that of several events."""
        return Identity(self.source, self.id).name

    @property
    def origin_topic(self) -> str:
        return self.origin.rsplit("/", 2)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Selects letters: those that match all of this."""

    ids: Collection[str] = ()
    """Ids of events, or their names: `id@source`."""
    key: bytes | None = None
    reason: str | None = None
    """Part of the reason, in upper or lower case."""
    since: datetime | None = None
    until: datetime | None = None
    groups: Collection[str | None] = ()
    """The letters' consumer groups; None stands for letters that name none."""
    topic: str | None = None
    """The topic that they come from."""
    type: str | None = None
    places: Collection[At] | None = None
    """No others than these."""
    passes: Callable[[Record], bool] | None = None
    """Whether a letter's record is meant, by what it contains."""

    def has(self, letter: Letter) -> bool:
        return (
            (not self.ids or letter.id in self.ids or letter.name in self.ids)
            and (self.key is None or letter.key == self.key)
            and (self.reason is None or self.reason.lower() in letter.reason.lower())
            and (self.since is None or letter.died_at >= self.since)
            and (self.until is None or letter.died_at < self.until)
            and (not self.groups or letter.group in self.groups)
            and (self.topic is None or letter.origin_topic == self.topic)
            and (self.type is None or letter.type == self.type)
            and (self.places is None or letter.at in self.places)
        )

    def takes(self, letter: Letter, record: Record) -> bool:
        """Return whether a letter is selected, which is in `record`."""
        return self.has(letter) and (self.passes is None or self.passes(record))

    @property
    def is_narrowed(self) -> bool:
        """Whether it selects less than all letters of its groups."""
        return self != Which(groups=self.groups)


def letter(record: Record) -> Letter:
    """Return the letter in a record of a dead-letter topic."""
    state, lacks = copies.delivery(record), dict(record.headers).get(envelope.WITHOUT_VALUE)
    source, id_ = copies.known(record)
    return Letter(
        at=record[1:3],
        id=id_,
        source=source,
        key=record.key,
        reason=state.error or "",
        attempts=state.attempt,
        origin=state.origin or copies.place(record),
        group=state.group,
        died_at=datetime.fromtimestamp((milliseconds(record.timestamp) or 0) / 1000, UTC),
        size=len(record.value or b""),
        without_value=any(name == envelope.WITHOUT_VALUE for name, _ in record.headers),
        left=None if lacks is None else copies.left_of(lacks),
        type=_type(record),
    )


def _type(record: Record) -> str | None:
    found = next((value for name, value in record.headers if name == envelope.TYPE and value), b"")
    try:
        return found.decode() or envelope.FOREIGN_TYPE
    except UnicodeDecodeError:
        return None


def resolved(record: Record) -> At | None:
    """Return which letter of its partition a record resolves; None: it is a letter itself."""
    for name, value in record.headers:
        if name == envelope.RESOLVES:
            offset = resolved_offset(value)
            # A producer that writes nonsense there hides one record of its own, and no letter.
            return record.partition, record.offset if offset is None else offset
    return None


def resolved_offset(header: bytes | None) -> int | None:
    """Return the offset in the header of a resolution; None: it has none."""
    offset = (header or b"").partition(b" ")[0]
    return int(offset) if _OFFSET.fullmatch(offset) else None


def is_fence(record: Record) -> bool:
    """Return whether a record is a note that resolves nothing, as `DeadTopic` writes."""
    return any(
        name == envelope.RESOLVES and (value or b"").startswith(b"nothing ")
        for name, value in record.headers
    )


def resolution(found: Letter, action: Action, by: str = "") -> list[Pair]:
    """Return the headers of the record that reports the fate of a letter, and who decided it."""
    said = f"{found.at[1]} {action}" + (f" by {by[:_MOST_NAME]}" if by else "")
    return [(envelope.RESOLVES, said.encode(errors="backslashreplace"))]


def standing(records: Iterable[Record], which: Which) -> list[Letter]:
    """Return the selected letters that are not resolved, in the order of their topic."""
    return first_standing(records, which, None).letters


def any_standing(records: Iterable[Record], which: Which) -> bool:
    """Return whether any selected letter stands; letters with a place were listed before."""
    if which.places is not None:
        return any(each[1:3] in which.places for each in records)
    found = first_standing(records, which, 1)
    return bool(found.letters or found.others)  # the first one may be resolved by now


class Standing(NamedTuple):
    """Letters that are not resolved."""

    letters: list[Letter]
    """The first ones, in the order of their topic."""
    others: set[At]
    """Where the others are."""


def first_standing(
    records: Iterable[Record],
    which: Which,
    most: int | None,
    *,
    among: Collection[At] | None = None,
) -> Standing:
    """
    Return the selected letters that are not resolved, whole for no more than `most` of them.

    `among`: only these. Any producer may fill a dead-letter topic, and a place is small.
    """
    found: dict[At, Letter] = {}
    others: set[At] = set()
    for record in records:
        gone = resolved(record)
        if gone is not None:
            found.pop(gone, None)
            others.discard(gone)
        elif (among is None or record[1:3] in among) and which.takes(
            one := letter(record), record
        ):
            if most is not None and len(found) >= most:
                others.add(one.at)
            else:
                found[one.at] = one if most is None else shortened(one)
    return Standing(sorted(found.values()), others)


_MOST_TEXT = 2_000


def shortened(found: Letter) -> Letter:
    """Return a letter without the rest of long texts, which its sender chose."""
    key = None if found.key is None else found.key[:_MOST_TEXT]
    return found._replace(key=key, reason=found.reason[:_MOST_TEXT])


def require_one_source(found: Iterable[Letter], which: Which) -> None:
    """
    Check that each of the ids that an operator named is the id of one event.

    Raises:
        BadSettings: sources have events with the same id; the message has their names.
    """
    names: dict[str, set[str]] = {}
    for each in found:
        names.setdefault(each.id, set()).add(each.name)
    for id_ in which.ids:
        if len(of := names.get(id_, ())) > 1:
            msg = f"{id_!r} is an id of several sources; name the event: {', '.join(sorted(of))}"
            raise BadSettings(msg)


def target(found: Letter, *, to: str | None, known: Collection[str]) -> str:
    """
    Return the topic to requeue a letter to: `to`, or the topic it comes from if that is known.

    Raises:
        BadSettings: it comes from another topic; a record cannot choose where records go.
    """
    if to is not None:
        return to
    if found.origin_topic not in known:
        msg = (
            f"it comes from topic {found.origin_topic!r}, which is not in the settings; say where "
            "it goes with --to"
        )
        raise BadSettings(msg)
    return found.origin_topic


def require_whole(found: Letter, whole: Record | None) -> Record:
    """
    Return the record that has what a letter lacks, if `whole` is that.

    Raises:
        InvalidEvent: it is not, or nobody knows where that record is.
    """
    lacks = found.left
    if lacks is None or lacks.place is None:
        size = "" if lacks is None else f" of {lacks.size:,} bytes"
        msg = f"it lacks its value{size}, which no topic has; it comes from {found.origin}"
        raise InvalidEvent(msg)
    where = "/".join(map(str, lacks.place))
    if whole is None or not lacks.is_in(whole):
        why = "is no longer there" if whole is None else "is not that of the record there"
        msg = f"its value of {lacks.size:,} bytes, which was at {where}, {why}"
        raise InvalidEvent(msg)
    return whole
