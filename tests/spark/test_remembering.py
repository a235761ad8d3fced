"""Copies are found in whatever batch they come, and are counted."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from dedup.rules.identity import identity
from dedup.rules.policies.memory import Memory, Seen
from outbox.envelope import ATTEMPT, ID, ORIGIN, ROUND, TIME, Pair, Record, parse_time
from outbox.errors import BadSettings
from tests.spark.fix_spark import Job, MakeJob
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient

Sent = tuple[str | None, bytes, list[Pair]]


def _sent(count: int) -> list[Sent]:
    """Return records of few keys or none, half of them duplicates of an earlier one."""
    dice = random.Random(23)
    sent: list[Sent] = []
    for n in range(count):
        if sent and dice.random() < 0.5:
            sent.append(dice.choice(sent))
            continue
        headers: list[Pair] = [(ID, f"e{n}".encode())] if dice.random() < 0.9 else []
        if dice.random() < 0.2:
            headers += [(ATTEMPT, b"1"), (ROUND, b"1"), (ORIGIN, b"orders/0/0")]
        sent.append((dice.choice([None, "a", "b", "c"]), f"{n}".encode(), headers))
    return sent


def _passing(records: Sequence[Record], within: int) -> list[Record]:
    seen = [Seen(identity(r), r.timestamp, (r.topic, r.partition)) for r in records]
    duplicates = Memory(within).duplicates(seen)
    return [record for record, again in zip(records, duplicates, strict=True) if not again]


def _ids(records: Sequence[Record]) -> Counter[tuple[bytes | None, bytes | None, object]]:
    return Counter((r.key, r.value, dict(r.headers).get(ROUND)) for r in records)


def test_each_identity_passes_once_over_batches_and_restarts(job: MakeJob) -> None:
    dedup = job(type="exact", value="raw", remember="10m").with_(
        source={"max_offsets_per_trigger": 45}, state={"buckets": 3}
    )
    sent = _sent(240)
    dedup.send(*sent[:120])
    first = dedup.run()
    dedup.send(*sent[120:])

    lines = [*first, *dedup.run()]

    assert len(lines) > 4
    records = dedup.input()
    passing = _passing(records, 600_000)
    assert 100 < len(passing) < 200
    assert _ids(dedup.output()) == _ids(passing)
    skipped = sum((Counter(line.skipped) for line in lines), Counter[str]())
    assert skipped == {"duplicate": len(records) - len(passing)}
    assert sum(line.rows for line in lines) == len(sent)
    assert sum(line.handled for line in lines) == len(passing)
    assert lines[-1].state_bytes > lines[-1].largest_bucket > 0


def test_a_memory_has_to_be_there_from_the_beginning_of_a_checkpoint(job: MakeJob) -> None:
    without: Job = job(value="raw")
    without.send(("a", b"1", []))
    without.run()
    remembering = without.with_(operator={"remember": "1m"})

    with pytest.raises(BadSettings, match=r"operator\.remember = None, not True"):
        remembering.run()

    fresh = job(value="raw", remember="1m")
    fresh.run()
    with pytest.raises(BadSettings, match=r"operator\.remember = True, not None"):
        fresh.with_(operator={"remember": None}).run()


@pytest.mark.parametrize("remember", [{}, {"remember": "10m"}])
def test_a_timestamp_in_nanoseconds_ends_nothing_and_is_written_as_a_time(
    job: MakeJob, topic: MakeTopic, remember: dict[str, str]
) -> None:
    source = topic(1, message_timestamp_after_max_ms=str(2**63 - 1))
    dedup = job(type="exact", value="raw", **remember).with_(source={"topics": (source,)})
    now = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": dedup.kafka})
    for n, stamp in enumerate((now, now * 1_000_000, now * 1_000, 2**63 - 1, now)):
        for _ in range(2):
            producer.produce(source, b"%d" % n, b"k", timestamp=stamp, headers=[(ID, b"%d" % n)])
    assert producer.flush(patient(30)) == 0

    lines = [*dedup.run(), *dedup.run()]

    written = dedup.output()
    assert sorted(each.value or b"" for each in written) == [b"%d" % n for n in range(5)]
    assert sum(line.restamped for line in lines) == 3
    assert sum(line.dead for line in lines) == 0
    assert all(each.timestamp < now + 3_600_000 for each in written)
    times = {each.value: dict(each.headers).get(TIME) for each in written}
    assert parse_time((times[b"1"] or b"").decode()) == datetime.fromtimestamp(now / 1000, UTC)
    assert times[b"1"] == times[b"2"]
