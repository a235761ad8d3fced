"""Make the outputs for a closed call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.operators.pairing.calls import Call, Event
from spark_jobs.operators.settings import PairingSettings
from spark_jobs.operators.step import Output, Paired, Skipped

# Calls tuple's own constructor; the named tuple's takes three times as long.
_new = tuple.__new__


@dataclass(frozen=True, slots=True)
class Sayings:
    """Makes results of calls."""

    names: Sequence[tuple[str, str]]
    """The name of each side in a result, and its topic."""
    as_list: bool
    """Each side has a list of all its events, not one event."""

    @classmethod
    def of(cls, settings: PairingSettings) -> "Sayings":
        names = [(name, side.topic) for name, side in settings.sides.items()]
        return cls(names, settings.on_duplicate_side == "list")

    def of_pair(self, key: bytes, low: int, one: Event, other: Event) -> Paired:
        """Return the result of one event of each side; not for `as_list`."""
        (name, topic), (other_name, other_topic) = self.names
        fields = {name: one.field, other_name: other.field}
        sides = {topic: one.offset, other_topic: other.offset}
        return _new(Paired, (key, low, fields, sides))

    def of_call(self, key: bytes, call: Call) -> list[Output]:
        """Return notes about duplicate events, and the result."""
        fields: dict[str, Any] = {}
        sides: dict[str, int | list[int]] = {}
        for (name, topic), found in zip(self.names, call.sides, strict=True):
            if not found:
                fields[name] = None
            elif not self.as_list:
                fields[name], sides[topic] = found[0].field, found[0].offset
            else:
                fields[name] = [event.field for event in found]
                offsets = [event.offset for event in found]
                sides[topic] = offsets if len(offsets) > 1 else offsets[0]
        said: list[Output] = [
            Skipped(key, each.topic, each.partition, each.offset, "duplicate side")
            for each in call.dropped
        ]
        time = call.low if not call.dropped else min(event.time for event in call.used())
        return [*said, _new(Paired, (key, time, fields, sides))]
