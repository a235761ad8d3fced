"""The job's results for its topics, batch by batch."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Producer

from dedup.replay.policy import TracedPolicy
from dedup.replay.replay import replay
from dedup.rules.identity import Identity, identity
from dedup.rules.policies import decode
from dedup.rules.policies.policies import POLICIES, Handled, Skipped, by_key
from dedup.rules.policies.results import Done
from outbox import Limits
from outbox.envelope import (
    ATTEMPT,
    ERROR,
    FIRST_SEEN,
    ID,
    NOT_BEFORE,
    ORIGIN,
    ROUND,
    SOURCE,
    Record,
)
from spark_jobs.sink.markers import kind
from spark_jobs.source.offsets import Offsets
from tests.spark.fix_spark import Job, MakeJob
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient

HANDLER = "tests.unit.spark_jobs.handlers:by_value"


def _value(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _mixed(count: int) -> list[tuple[str | None, bytes, list[tuple[str, bytes]]]]:
    """Return records of few keys or none, with copies, and some that the filter rejects."""
    dice = random.Random(4711)  # the same records in every run
    sent = []
    for _ in range(count):
        key = dice.choice([None, *(f"key-{n}" for n in range(9))])
        id_ = f"{key}-{dice.randrange(count // 8)}"
        sent.append((key, _value(n=dice.randrange(5)), [(ID, id_.encode())]))
    return sent


def _batches(job: Job) -> list[list[Record]]:
    """Return the input of each batch, from Spark's own log of offsets."""
    logs = sorted((int(file.name), file) for file in (job.checkpoint / "offsets").glob("[0-9]*"))
    begun: Mapping[int, int] = {}
    batches = []
    for _, log in logs:
        ends = json.loads(log.read_text().splitlines()[-1])[job.source]
        until = Offsets.of({job.source: ends}).ends[job.source]
        batches.append(
            [
                each
                for each in job.input()
                if begun.get(each.partition, 0) <= each.offset < until.get(each.partition, 0)
            ]
        )
        begun = until
    return batches


def _content(records: Sequence[Record]) -> Counter[tuple[object, ...]]:
    return Counter((each.key, each.value, tuple(each.headers)) for each in records)


@pytest.mark.parametrize("grouping", ["partitions", "shuffle"])
@pytest.mark.parametrize("policy", ["first_match", "exact", "latest"])
def test_a_jobs_results_are_those_of_the_policy_on_each_batch(
    job: MakeJob, policy: str, grouping: str
) -> None:
    dedup = job(type=policy, filter="value.n > 0").with_(
        source={"max_offsets_per_trigger": 400}, spark={"grouping": grouping}
    )
    dedup.send(*_mixed(900))

    shown = dedup.run()

    batches = _batches(dedup)
    assert len(batches) == len(shown) > 1
    handled: list[Record] = []
    for batch, line in zip(batches, shown, strict=True):
        batch.sort(key=lambda each: (each.topic, each.partition, each.offset))
        verdicts = [
            verdict
            for _, of_key in by_key(batch, lambda each: each.key)
            for verdict in POLICIES[policy](
                of_key,
                matches=lambda each: decode.as_json(each).value["n"] > 0,
                handle=lambda _: Done(),
                identity=identity,
            )
        ]
        winners = [each.record for each in verdicts if isinstance(each, Handled)]
        skips = Counter(kind(each.reason) for each in verdicts if isinstance(each, Skipped))
        assert (line.rows, line.handled, line.skipped) == (len(batch), len(winners), skips)
        handled += winners
    assert _content(dedup.output()) == _content(handled)
    assert dedup.retries() == dedup.dead_letters() == []


def test_a_batch_comes_to_what_replay_makes_of_its_trace(job: MakeJob) -> None:
    dedup = job(filter="value.n > 1", batch_size=300)
    dedup.send(*_mixed(300))

    dedup.run()

    trace = [
        json.dumps(
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "timestamp": each.timestamp,
                "key": None if each.key is None else each.key.decode(),
                "value": json.loads(each.value or b"null"),
                "headers": [[name, (value or b"").decode()] for name, value in each.headers],
            }
        ).encode()
        for each in dedup.input()
    ]
    lines = list(replay(TracedPolicy(dedup.settings.operator), trace))
    results = Counter((line["key"], line["id"]) for line in lines if line["kind"] == "result")
    written = [(each.key and each.key.decode(), identity(each).id) for each in dedup.output()]
    assert Counter(written) == results


def test_markers_tell_which_rows_came_to_what(job: MakeJob) -> None:
    dedup = job(type="exact")
    dedup.send(*_mixed(200))

    (line,) = dedup.run()

    markers = dedup.markers()
    ranges: dict[int, tuple[int, int]] = {}
    for marker in markers.values():
        assert (marker.batch, marker.partitions) == (0, 2)
        for partition, (first, last) in marker.ranges[dedup.source].items():
            low, high = ranges.get(partition, (first, last))
            ranges[partition] = (min(low, first), max(high, last))
    offsets = [(each.partition, each.offset) for each in dedup.input()]
    assert ranges == {
        p: (min(o for q, o in offsets if q == p), max(o for q, o in offsets if q == p))
        for p in {partition for partition, _ in offsets}
    }
    assert sum(marker.counts.rows for marker in markers.values()) == line.rows == 200
    assert sum(marker.counts.handled for marker in markers.values()) == len(dedup.output())


def test_failures_go_round_with_what_they_went_through_and_end_as_dead_letters(
    job: MakeJob,
) -> None:
    dedup = job(handler=HANDLER).with_(retry={"max_attempts": 2})
    old = [(ID, b"old"), (ATTEMPT, b"2"), (ROUND, b"4"), (ORIGIN, b"a/0/1"), (FIRST_SEEN, b"77")]
    dedup.send(
        ("a", _value(do="raise"), [(ID, b"e1"), ("x", b"1")]),
        ("b", _value(do="raise"), old),
        ("c", _value(do="dead"), [(ID, b"e3")]),
        ("d", _value(do="again"), [(ID, b"e4")]),
        ("e", b"{", [(ID, b"e5")]),
    )
    places = {each.key: f"in/{each.partition}/{each.offset}" for each in dedup.input()}
    places = {key: place.replace("in", dedup.source) for key, place in places.items()}

    (line,) = dedup.run()

    retried = {each.key: each for each in dedup.retries()}
    dead = {each.key: each for each in dedup.dead_letters()}
    assert set(retried) == {b"a", b"d", b"e"}
    assert set(dead) == {b"b", b"c"}
    assert (line.handled, line.retried, line.dead) == (1, 2, 2)
    first, again = dict(retried[b"a"].headers), dict(retried[b"d"].headers)
    assert retried[b"a"].value == _value(do="raise")
    source = (SOURCE, dedup.source.encode())
    assert retried[b"a"].headers[:3] == [source, (ID, b"e1"), ("x", b"1")]
    assert (first[ATTEMPT], first[ROUND]) == (b"2", b"1")
    assert first[ORIGIN] == places[b"a"].encode()
    assert (first[ERROR] or b"").startswith(b"RuntimeError: broken e1 (handlers.py:")
    seen = int(first[FIRST_SEEN] or 0)
    backoff = dedup.settings.backoff().wait(Identity(dedup.source, "e1"), attempt=1)
    assert int(first[NOT_BEFORE] or 0) - seen == round(backoff.total_seconds() * 1000)
    assert (again[ATTEMPT], again[ROUND]) == (b"1", b"1")
    assert int(again[NOT_BEFORE] or 0) - int(again[FIRST_SEEN] or 0) == 5_000
    assert ERROR not in again
    exhausted, final = dict(dead[b"b"].headers), dict(dead[b"c"].headers)
    error = exhausted.pop(ERROR)
    assert (error or b"").startswith(b"RuntimeError: broken old (handlers.py:")
    assert exhausted == {**dict(old), SOURCE: b"a"}
    assert (final[ATTEMPT], final[ROUND], final[ERROR]) == (b"1", b"0", b"never")
    assert final[ORIGIN] == places[b"c"].encode()


def test_what_an_aborted_transaction_left_in_the_topic_is_not_read(job: MakeJob) -> None:
    dedup = job()
    for number, committed in enumerate([True, False, True]):
        producer = Producer(
            {"bootstrap.servers": dedup.kafka, "transactional.id": f"{dedup.source}-{number}"}
        )
        producer.init_transactions(patient(30))
        producer.begin_transaction()
        for n in range(5):
            producer.produce(dedup.source, b"{}", f"{number}-{n}", partition=0)
        producer.flush(patient(30))
        if committed:
            producer.commit_transaction(patient(30))
        else:
            producer.abort_transaction(patient(30))

    (line,) = dedup.run()

    keys = {f"{number}-{n}".encode() for number in (0, 2) for n in range(5)}
    assert {each.key for each in dedup.output()} == keys
    assert line.rows == line.handled == 10
    # Offsets 5 and 17 are the transactions' own, and 6 to 11 were aborted.
    ranges = [marker.ranges[dedup.source][0] for marker in dedup.markers().values()]
    assert (min(first for first, _ in ranges), max(last for _, last in ranges)) == (0, 16)
    assert dedup.run() == []


def test_a_record_whose_output_is_too_large_for_the_client_is_buried_as_it_came(
    job: MakeJob,
) -> None:
    dedup = job(handler=HANDLER)
    large = _value(do="large")
    dedup.send(("a", large, [(ID, b"big")]), ("b", _value(do="done"), []))

    dedup.run()

    (dead,) = dedup.dead_letters()
    assert (dead.key, dead.value) == (b"a", large)
    assert dict(dead.headers)[ID] == b"big"
    assert b"too large" in (dict(dead.headers)[ERROR] or b"").lower()
    assert [each.key for each in dedup.output()] == [b"b"]


def test_the_largest_event_that_the_outbox_takes_comes_through(job: MakeJob) -> None:
    dedup = job()
    text = random.Random(1).randbytes(Limits().value // 2).hex()[: Limits().value - 2]
    value = b'"' + text.encode() + b'"'
    dedup.send(("k" * Limits().key, value, [("note", b"x" * 20_000)]))

    dedup.run()

    assert [len(each.value or b"") for each in dedup.output()] == [Limits().value]
    assert dedup.dead_letters() == []


@pytest.mark.parametrize("narrow", [False, True])
def test_a_record_too_large_for_its_topic_is_buried_and_no_other(
    job: MakeJob, topic: MakeTopic, *, narrow: bool
) -> None:
    small, dead_letters = (
        topic(1, **({"max_message_bytes": "2000"} if each else {})) for each in (True, narrow)
    )
    dedup = job().with_(output={"topic": small, "dead_letter_topic": dead_letters})
    large = b'"' + random.Random(1).randbytes(3000).hex().encode() + b'"'
    dedup.send(
        *((f"k{n}", b'"x"', []) for n in range(20)),
        ("big", large, []),
    )

    lines = dedup.run()

    assert {each.key for each in dedup.output()} == {f"k{n}".encode() for n in range(20)}
    (dead,) = dedup.dead_letters()
    assert (dead.key, dead.value) == (b"big", None if narrow else large)
    assert sum(line.dead for line in lines) == 1
    assert sum(line.handled for line in lines) == 20
    assert dict(dead.headers)[ORIGIN] is not None


def test_a_dead_letter_topic_that_is_large_enough_takes_the_whole_record(
    job: MakeJob, topic: MakeTopic
) -> None:
    source, dead = (topic(1, max_message_bytes="8000000") for _ in range(2))
    dedup = job(handler=HANDLER).with_(
        source={"topics": [source]}, output={"dead_letter_topic": dead}
    )
    value = b'"' + random.Random(1).randbytes(1_500_000).hex().encode() + b'"'
    dedup.send(("big", value, []))

    dedup.run()

    assert [each.value for each in dedup.dead_letters()] == [value]
