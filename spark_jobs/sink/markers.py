"""Decide from a marker what to do with a batch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Self, TypeAlias

_FORMAT = 1
_RUNNING_MILLISECONDS = 60_000

Ranges: TypeAlias = Mapping[str, Mapping[int, tuple[int, int]]]
"""First and last offset of a batch's rows, by topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The results of a batch's rows."""

    rows: int = 0
    handled: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Skipped rows by kind of reason: `filtered`, `superseded`, `duplicate`, `handler`."""
    retried: int = 0
    dead: int = 0
    restamped: int = 0
    """Records that got the time of writing, because their topic refuses their own."""

    def __add__(self, other: Self) -> Self:
        kinds = sorted({*self.skipped, *other.skipped})
        return replace(
            self,
            rows=self.rows + other.rows,
            handled=self.handled + other.handled,
            skipped={
                kind: self.skipped.get(kind, 0) + other.skipped.get(kind, 0) for kind in kinds
            },
            retried=self.retried + other.retried,
            dead=self.dead + other.dead,
            restamped=self.restamped + other.restamped,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One shuffle partition of one micro-batch of one query."""

    query: str
    """The query's id, from its checkpoint."""
    batch: int
    partition: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The record that is committed together with the output of one turn."""

    query: str
    batch: int
    partition: int
    partitions: int
    digest: str
    """A digest of what the batch reads: the same input has the same digest."""
    ranges: Ranges = field(default_factory=dict)
    counts: Counts = Counts()
    way: str = ""
    """How the records of a key met in this turn; an unfinished batch goes on in the same way."""
    adopted: str | None = None
    """The query whose marker this one replaced."""

    def encode(self) -> bytes:
        """Return the value of the marker record."""
        fields = {"format": _FORMAT, **asdict(self)}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """
        Return the marker in a record's value.

        Raises:
            ValueError: this version does not understand the value.
        """
        try:
            fields = json.loads(value)
            if fields.pop("format") != _FORMAT:
                msg = f"marker of another format: {value[:200]!r}"
                raise ValueError(msg)
            counts = Counts(**fields.pop("counts"))
            ranges = {
                topic: {int(p): (int(first), int(last)) for p, (first, last) in places.items()}
                for topic, places in fields.pop("ranges").items()
            }
            return cls(ranges=ranges, counts=counts, **fields)
        except (
            KeyError,
            TypeError,
            AttributeError,
            UnicodeDecodeError,
            json.JSONDecodeError,
            RecursionError,
        ) as error:
            msg = f"not a marker: {value[:200]!r}"
            raise ValueError(msg) from error


@dataclass(frozen=True, slots=True)
class Write:
    """Nothing of this turn is committed: write it."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All of this turn is committed: leave it."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Refused:
    """Writing it could repeat records, and leaving it could lose some."""

    reason: str


Decision: TypeAlias = Write | Committed | Refused


def decide(found: Marker | None, turn: Turn, *, digest: str, adopt: bool = False) -> Decision:
    """
    Return what to do with `turn`, whose rows have `digest`, given the marker `found`.

    With `adopt`, an unfit marker does not count and the turn is written, unless a later batch of
    the same query is committed. In that case this run has been replaced, or goes on from an older
    checkpoint, whose batches need not have the same rows.
    """
    if found is None:
        return Write()
    reason = _foreign(found, turn) or _other_input(found, turn, digest)
    if reason is not None:
        return Write() if adopt else Refused(reason)
    if (reason := _later(found, turn)) is not None:
        return Refused(reason)
    return Committed(found) if found.batch == turn.batch else Write()


def refusal(found: Marker, turn: Turn) -> str | None:
    """Return why the query must not start with `turn` after `found`, or None if it may."""
    return _foreign(found, turn) or _later(found, turn)


def with_others(reason: str, *, ago: int, moves: bool) -> str:
    """
    Return `reason`, with what to do if another run of the query goes on.

    Its newest marker is `ago` milliseconds old; `moves`: a newer one came while we looked.
    """
    said = reason.partition(":")[0]
    if moves:
        return (
            f"another run of this query is going on and writes markers ({said}): end that run "
            "first, or give this job a `spark.query` name and a `spark.checkpoint` of its own. Do "
            "not use --adopt while it runs"
        )
    if ago > _RUNNING_MILLISECONDS:
        return reason
    return (
        f"another run of this query wrote a marker {max(ago, 0) // 1000} s ago: if it still runs, "
        f"end it first, and do not use --adopt. If none runs: {reason}"
    )


def half_done(found: Marker, turn: Turn) -> str | None:
    """Return why `found` cannot even be adopted, or None if it can."""
    if found.query != turn.query or found.partitions == turn.partitions:
        return None
    if found.batch < turn.batch:
        return None
    return (
        f"{_place(found)} shows batch {found.batch} half written with {found.partitions} shuffle "
        f"partitions; set `spark.shuffle_partitions` back to {found.partitions} until that "
        "batch is finished, then change it and run once with --adopt"
    )


def adopt(found: Marker, turn: Turn) -> Marker:
    """Return the marker with which `turn` and later ones go on in place of `found`."""
    return Marker(
        query=turn.query,
        batch=turn.batch - 1,
        partition=found.partition,
        partitions=turn.partitions,
        digest="",
        adopted=found.query,
    )


@lru_cache(maxsize=1024)
def kind(reason: str) -> str:
    """Return the kind of a reason to skip: `duplicate of 42` is a `duplicate`."""
    return reason.split(" ", 1)[0].rstrip(":")


def _foreign(found: Marker, turn: Turn) -> str | None:
    if found.query != turn.query:
        return (
            f"{_place(found)} belongs to the query {found.query}, this checkpoint's is "
            f"{turn.query}: the checkpoint is new, or another job has the same name. Use the "
            "old checkpoint, give this job a `spark.query` name of its own, or "
            f"{_way_out('let this query take over', 'what the other has written')}"
        )
    if found.partitions != turn.partitions:
        return (
            f"{_place(found)} was written with {found.partitions} shuffle partitions, now there "
            f"are {turn.partitions}. Set `spark.shuffle_partitions` back to {found.partitions}, "
            f"or {_way_out('go on with the new count')}"
        )
    return None


def _later(found: Marker, turn: Turn) -> str | None:
    if found.batch <= turn.batch:
        return None
    return (
        f"{_place(found)} is already at batch {found.batch}, the checkpoint only at "
        f"{turn.batch}: an older checkpoint was put back, or another run of this job has gone on. "
        "Put the newer one in its place, "
        f"or {_way_out('start again from where this checkpoint is', 'what was written since')}"
    )


def _other_input(found: Marker, turn: Turn, digest: str) -> str | None:
    if found.batch != turn.batch or found.digest == digest:
        return None
    return (
        f"{_place(found)} shows batch {found.batch} written from other rows "
        f"({found.ranges or 'none'}) than it has now: the checkpoint was changed by hand, or a "
        "topic was compacted, trimmed or made anew in between. "
        f"Put the checkpoint back, or {_way_out('write the batch as it is now')}"
    )


def _place(found: Marker) -> str:
    return f"marker partition {found.partition}"


def _way_out(what: str, repeated: str = "records of its first batch") -> str:
    return f"run once with --adopt to {what} ({repeated} may appear twice)"
