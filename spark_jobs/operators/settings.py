"""The `[operator]` tables of the stateful operators."""

from datetime import timedelta
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from dovecote.process.settings.durations import duration
from dovecote.process.settings.models import Settings
from dovecote.process.settings.values import Duration
from spark_jobs.operators.step import NEVER

MILLISECOND = timedelta(milliseconds=1)

StreamTime: TypeAlias = Literal["per_key", "per_partition", "global"]
"""Whose records move event time: the key's own, those of its input partition, or all."""


def _or_off(value: object) -> object:
    return None if value is None or value == "off" else duration(value)


OptionalDuration: TypeAlias = Annotated[timedelta | None, BeforeValidator(_or_off)]
"""A duration, or "off"."""


def milliseconds(time: timedelta) -> int:
    """Return `time` in whole milliseconds."""
    return time // MILLISECOND


def wait(time: timedelta | None) -> int:
    """Return how many milliseconds to wait; "off" means for ever."""
    return NEVER if time is None else milliseconds(time)


class _TypedSettings(Settings):
    type: str
    """The operator; may be left out if the command names it."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_this_type(cls, table: Any) -> Any:  # noqa: ANN401  # whatever the file holds there
        # Before the fields: otherwise a table for another operator would fail because of its own
        # fields.
        wanted = cls.model_fields["type"].default
        found = table.get("type", wanted) if isinstance(table, dict) else wanted
        if found != wanted:
            msg = f'type is "{found}" here, but {wanted} was asked for'
            raise ValueError(msg)
        return table


class WindowedSettings(_TypedSettings):
    """The common settings of pairing and sessions."""

    key: Literal["record"] | Annotated[tuple[str, ...], Field(min_length=1)] = "record"
    """The key that groups records: the record's own, or fields of the value."""

    event_time: str | None = None
    """The field of the value with milliseconds; absent or null: the record's timestamp."""

    grace: Duration = timedelta(0)
    """How late a record may be."""

    stream_time: StreamTime = "per_key"
    """Whose records move event time: the key's own, those of its input partition, or all."""

    max_lag: OptionalDuration = timedelta(minutes=5)
    """A record older than this when it is read means that the source lags; `off`: never."""

    max_ahead: OptionalDuration = timedelta(hours=1)
    """
    A record whose event time is further ahead of the wall clock moves no time: it goes to the late
    topic, or without one to the dead letters; `off`: never.
    """

    forget_after: OptionalDuration = timedelta(hours=24)
    """A key with nothing open is forgotten this long after its last record; `off`: never."""


def _open_for(found: dict[str, Any]) -> timedelta:
    # A refused field is missing here, and then the default does not matter.
    none = timedelta(0)
    longest = found.get("within") or found.get("gap") or none
    return longest + found.get("grace", none)  # type: ignore[no-any-return]  # both are durations


class SessionsSettings(WindowedSettings):
    """`type = "sessions"`: records of a key that are no further apart than the gap."""

    type: Literal["sessions"] = "sessions"

    gap: Duration
    """The longest time between two neighbours in one session."""

    close_after: OptionalDuration = Field(default_factory=_open_for)
    """
    Wall clock time since the key's last record after which its sessions close; default: `gap` +
    `grace`; `off`: never.
    """

    emit: Literal["final", "update"] = "final"
    """Output only final results, or every change as well."""

    aggregate: Annotated[str, Field(min_length=1)] = "count"
    """`count`, `sum`, `list`, `first`, `last`, `min`, `max`, or `module:object`."""

    max_value_bytes: Annotated[int, Field(ge=1)] = 2**20
    """
    The most bytes of JSON that a session's `list`, or its value from a `module:object`, may have;
    a record beyond it goes to the dead letters.
    """

    field: str | None = None
    """The field of the value to aggregate; absent: the value itself."""

    @model_validator(mode="after")
    def _has_a_gap(self) -> Self:
        if milliseconds(self.gap) < 1:
            msg = "gap must be at least 1ms"
            raise ValueError(msg)
        return self


class SideSettings(Settings):
    """One side of a call."""

    topic: Annotated[str, Field(min_length=1)]
    """The topic of its events."""

    field: str | None = None
    """The field of the value that goes into the result; absent: the whole value."""


class PairingSettings(WindowedSettings):
    """`type = "pairing"`: one result per call, of two events or of one."""

    type: Literal["pairing"] = "pairing"

    within: Duration
    """The longest time between the two events of a call, inclusive."""

    close_after: OptionalDuration = Field(default_factory=_open_for)
    """Wall clock time after which a call closes; default: `within` + `grace`; `off`: never."""

    emit: Literal["on_close", "on_pair"] = "on_close"
    """Output a whole call when it closes, or as soon as both events are there."""

    on_duplicate_side: Literal["first", "last", "list"] = "first"
    """Which event counts if a side comes twice in one call."""

    max_events: Annotated[int, Field(ge=2)] = 1_000
    """
    The most events of a key that may wait or be remembered at once; a record beyond it goes to the
    dead letters.
    """

    sides: dict[str, SideSettings]
    """The two sides, by the name of their field in the result."""

    @model_validator(mode="after")
    def _two_sides(self) -> Self:
        if len(self.sides) != 2:  # noqa: PLR2004  # a pair
            msg = f"sides must be two, not {len(self.sides)}"
            raise ValueError(msg)
        if len({side.topic for side in self.sides.values()}) != len(self.sides):
            msg = "the sides must come from two topics"
            raise ValueError(msg)
        names = [*(["key"] if self.key == "record" else self.key), "ts", *self.sides]
        if len({*names}) != len(names):
            msg = f"the fields of a result have the same name: {', '.join(names)}"
            raise ValueError(msg)
        return self


class DelaySettings(_TypedSettings):
    """`type = "delay"`: a record goes on when its `dovecote_not_before` has come."""

    type: Literal["delay"] = "delay"

    max_ahead: OptionalDuration = timedelta(days=366)
    """
    A record that would have to wait longer goes to the late topic, or without one to the dead
    letters; `off`: never.
    """
