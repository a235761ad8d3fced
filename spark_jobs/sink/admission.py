"""Decide whether a query may go on from the markers it finds, and take them over if told to."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_jobs.errors import KafkaUnavailable, MarkerRefused
from spark_jobs.sink import markers
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.markers import Marker, Turn
from spark_jobs.sink.sink import SinkConfig
from spark_jobs.sink.writer import NotCommitted, Writer

_LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A query may go on."""

    taken: list[Marker]
    """The markers that it took over."""
    way: str | None
    """How an earlier run has begun to write the query's first batch; None: none has."""


def admit(turn: Turn, config: SinkConfig, *, adopt: bool) -> Admitted:
    """
    Let a query go on with `turn`, its first one (the partition does not matter).

    Reads before it fences: a copy of a job that only shares the name must not stop the original.
    With `adopt`, it writes a marker of this query over each marker that would stop it.

    Raises:
        MarkerRefused: a marker stops the query.
    """
    topic = MarkerTopic(config.marker_topic, config.kafka, timeout=config.timeout)
    found = topic.read(range(topic.partitions()))
    stopping = []
    for partition, marker in sorted(found.items()):
        here = replace(turn, partition=partition)
        reason = markers.refusal(marker, here)
        if reason is None:
            continue
        if not adopt:
            raise MarkerRefused(_with_others(reason, found, topic))
        if (reason := markers.half_done(marker, here)) is not None:
            raise MarkerRefused(reason)
        stopping.append(here)
    begun = {each.way for each in found.values() if _is_of(each, turn)}
    replaced = [_take_over(here, config) for here in stopping]
    taken = [each for each in replaced if each is not None]
    return Admitted(taken, next(iter(begun), None))


def _with_others(reason: str, found: Mapping[int, Marker], topic: MarkerTopic) -> str:
    """Look for a moment whether another run writes, for then its query must not be taken over."""
    deadline = time.monotonic() + _LOOK_SECONDS
    moves = False
    while not moves and time.monotonic() < deadline:
        moves = topic.read(range(topic.partitions())) != found
    ago = time.time_ns() // 1_000_000 - topic.written_at
    return markers.with_others(reason, ago=ago, moves=moves)


def _is_of(marker: Marker, turn: Turn) -> bool:
    return (marker.query, marker.batch) == (turn.query, turn.batch)


def _take_over(turn: Turn, config: SinkConfig) -> Marker | None:
    """Write this query's marker over the one that stops it, after fencing its writer."""
    writer = Writer(
        config.kafka,
        transactional_id=f"{config.transactional_id}.{turn.partition}",
        partition=turn.partition,
        topic=MarkerTopic(config.marker_topic, config.kafka, timeout=config.timeout),
        timeout=config.timeout,
    )
    try:
        writer.open()
        found = writer.marker
        if found is None or markers.refusal(found, turn) is None:
            return None
        writer.commit([], markers.adopt(found, turn))
    except NotCommitted as error:
        msg = f"cannot take over marker partition {turn.partition}: {error}; run it again"
        raise KafkaUnavailable(msg) from error
    finally:
        writer.close()
    return found
