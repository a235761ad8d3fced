"""Each input from outside costs about as much as it is long: none makes others wait."""

import gc
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from outbox.envelope import kind_headers
from relay.decoding.own import Own
from relay.decoding.payload import Kinds, decode_event
from relay.kafka.publisher import remembered
from relay.rules.sharding import divided
from tests.support.bounded import BOUNDED, Bounded
from tests.unit.relay.decoding.messages import payload

_TIMES = 8
_MOST = 3.0
"""
Times by which the cost may grow faster than the size: memory is slower where there is more of it.

The cost of a quadratic reader grows eight times faster.
"""
_SHORTEST = 0.002
_TRIES = 8


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile, which takes as long as other tests have left objects."""
    gc.disable()
    yield
    gc.enable()


def _seconds(reader: Bounded, size: int) -> float:
    """Return the processor time of this thread for one input."""
    given = reader.make(size)
    began = time.thread_time()
    reader.work(given)
    return time.thread_time() - began


@pytest.mark.parametrize("name", BOUNDED)
def test_eight_times_as_much_costs_about_eight_times_as_much(name: str) -> None:
    reader = BOUNDED[name]
    small, large = [float("inf")] * 2
    # The least of several tries is the work itself, and the rest is what others do on the machine.
    for _ in range(_TRIES):
        small = min(small, _seconds(reader, reader.size))
        large = min(large, _seconds(reader, _TIMES * reader.size))
        if large <= _MOST * _TIMES * max(small, _SHORTEST):
            return
    pytest.fail(f"{name}: {small * 1000:.1f} ms, and {large * 1000:.1f} ms for {_TIMES} times")


def _of_long_names(number: int) -> bytes:
    long = str(number).encode() * 20_000
    return payload(kind=(b"orders", long, long, None), key=long, value=b"v")


def test_what_a_relay_remembers_of_long_keys_and_names_stays_small() -> None:
    kinds: Kinds = {}
    (own, _) = (Own(shard) for shard in divided("shop", 2))
    tracemalloc.start()
    try:
        seen = set[object]()
        for number in range(1_000, 1_050):
            row = decode_event(_of_long_names(number), 0, 1, kinds)
            own.of_message(_of_long_names(number), 0)
            kind_headers(str(row[6]), str(row[7]), None)
            seen.add(remembered(row))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
        assert len(seen) == 50
    finally:
        tracemalloc.stop()
