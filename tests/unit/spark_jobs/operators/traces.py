"""Records for operators, and the ways a trace can be cut up."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from dedup.replay.trace import to_json
from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.operators.step import (
    Failed,
    Input,
    Late,
    Operator,
    Output,
    Paired,
    Session,
    Skipped,
)


def record(
    key: str | None,
    time: int,
    value: Any = None,
    *,
    topic: str = "t",
    partition: int = 0,
    offset: int = 0,
) -> Input:
    bytes_ = None if key is None else key.encode()
    return Input(bytes_, time, value, topic, partition, offset, to_json(value))


def golden(text: str, *, offset: int = 0) -> list[Input]:
    """Return the records of `key:time:value`, or with `:topic` at the end."""
    found = []
    for number, each in enumerate(text.split(), start=offset):
        key, time, value, *topic = each.split(":")
        found.append(record(key, int(time), value, topic=(topic or ["t"])[0], offset=number))
    return found


def brief(output: Output) -> tuple[Any, ...]:
    """Return the parts that tests look at."""
    match output:
        case Session(kind, key, start, end, value, _):
            return kind, key.decode(), start, end, value
        case Paired(key, time, fields, _):
            return "result", key.decode(), time, *fields.values()
        case Late(each, reason, _):
            return "late", (each.key or b"").decode(), each.time, reason
        case Skipped(_, _, _, offset, reason):
            return "skip", offset, reason
        case Failed(each, reason):
            return "error", each.offset, reason
        case _:
            return ("released", output[0])


def run(
    operator: Operator[Any],
    batches: Sequence[tuple[int, Sequence[Input]]],
    *,
    behind: bool = False,
    restart: bool = False,
) -> list[tuple[Any, ...]]:
    """Return the outputs of batches, each at its time; with `restart` the state is read anew."""
    state = operator.start()
    found: list[Output] = []
    for now, records in batches:
        state, outputs, _ = operator.step(state, records, now, behind=behind)
        found += outputs
        if restart:
            state = decode(operator, encode(operator, state))
    return [brief(output) for output in found]


def in_partitions(trace: Sequence[Input], partitions: int) -> list[Input]:
    """
    Return `trace` as if its topics had `partitions` partitions, with each key in one of them.
    """
    return [
        each._replace(partition=0 if each.key is None else each.key[0] % partitions)
        for each in trace
    ]


def whole(operator: Operator[Any], records: Sequence[Input]) -> list[tuple[Any, ...]]:
    return run(operator, [(0, records)])


@st.composite
def cuts(draw: st.DrawFn, records: Sequence[Any]) -> list[Sequence[Any]]:
    """Return `records` in batches, some of them empty."""
    at = sorted(draw(st.lists(st.integers(0, len(records)), max_size=6)))
    return [records[a:b] for a, b in zip([0, *at], [*at, len(records)], strict=True)]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def sessions(gap: int = 5, grace: int = 0, **more: Any) -> Sessions:
    table = {
        "stream_time": "per_partition",
        "aggregate": "list",
        "emit": "update",
        "close_after": None,
        **more,
    }
    return Sessions(SessionsSettings(gap=ms(gap), grace=ms(grace), **table))
