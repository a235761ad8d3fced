"""
Measure what objects cost against dictionaries, in CPU time of an event: `make bench-typed`.

It writes the same event as a dictionary, a dataclass, a msgspec struct and a pydantic model, up to
the statement for Postgres, and reads it as a consumer does, up to the handler's argument. There is
no server: that would be most of the time. The ways take turns in one process, and the median of
the rounds counts. `ratio` is against the dictionary.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from pydantic import BaseModel

from benchmarks import harness
from dedup.rules.annotations import typed
from dedup.rules.policies.decode import as_json
from dedup.rules.record import Record
from outbox import Event, Limits, envelope, event
from outbox.writing.append import Append
from outbox.writing.declared import to_event

_ROUNDS = 15
_EVENTS = 4_000
_NOW = datetime(2026, 11, 1, tzinfo=UTC)


@event("Plain", topic="orders", key="order_id")
@dataclass
class Plain:
    """As the library has it."""

    order_id: str
    customer: str
    amount: int
    at: str
    lines: list[str]


@event("Struct", topic="orders", key="order_id")
class Struct(msgspec.Struct):
    """As the library has it."""

    order_id: str
    customer: str
    amount: int
    at: str
    lines: list[str]


@event("Model", topic="orders", key="order_id")
class Model(BaseModel):
    """As the library has it."""

    order_id: str
    customer: str
    amount: int
    at: str
    lines: list[str]


_VALUE: dict[str, Any] = {
    "order_id": "order-42",
    "customer": "ann",
    "amount": 990,
    "at": _NOW.isoformat(),
    "lines": ["sku-1", "sku-2", "sku-3"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    rounds: int = parser.parse_args().rounds
    for path, ways in (("write", _writes()), ("consume", _reads())):
        found = _measured(ways, rounds)
        for way, seconds in found.items():
            harness.emit(
                "typed",
                path=path,
                value=way,
                cpu_us=round(seconds * 1e6, 2),
                ratio=round(seconds / found["dictionary"], 3),
            )


def _measured(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the CPU seconds of an event in each way."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            began = time.process_time()
            for _ in range(_EVENTS):
                call()
            found[way].append((time.process_time() - began) / _EVENTS)
    return {way: statistics.median(each) for way, each in found.items()}


def _writes() -> dict[str, Callable[[], object]]:
    def appended(given: object) -> object:
        return Append([to_event(given)], "outbox", Limits()).statement()

    def dictionary() -> object:
        return appended(Event(topic="orders", key="order-42", type="Plain", value={**_VALUE}))

    return {
        "dictionary": dictionary,
        "dataclass": lambda: appended(Plain(**_VALUE)),
        "msgspec": lambda: appended(Struct(**_VALUE)),
        "pydantic": lambda: appended(Model(**_VALUE)),
    }


def _reads() -> dict[str, Callable[[], object]]:
    def plain(_: Event[Plain]) -> None: ...
    def struct(_: Event[Struct]) -> None: ...
    def model(_: Event[Model]) -> None: ...

    def reads(handler: Callable[..., None], kind: str) -> Callable[[], object]:
        read = typed(handler, value="json")
        return lambda: read and read.event(_record(kind))

    return {
        "dictionary": lambda: as_json(_record("Plain")),
        "dataclass": reads(plain, "Plain"),
        "msgspec": reads(struct, "Struct"),
        "pydantic": reads(model, "Model"),
    }


def _record(kind: str) -> Record:
    headers = [(envelope.ID, b"%036d" % 1), (envelope.TYPE, kind.encode())]
    return Record("orders", 0, 1, 1_800_000_000_000, b"order-42", _BYTES, headers)


_BYTES = msgspec.json.encode(_VALUE)


if __name__ == "__main__":
    main()
