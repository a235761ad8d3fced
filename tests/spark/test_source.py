"""A job reads every record once, whatever its topics go through."""

import json
from collections import Counter

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pydantic import ValidationError

from outbox import envelope
from outbox.errors import BadSettings
from spark_jobs.errors import SourceChanged
from spark_jobs.jobs.check import check
from spark_jobs.rows.homes import homes
from tests.spark.fix_spark import PARTITIONS, Job, MakeJob
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient, until

SECONDS = patient(20)
START_SECONDS = 120


def _written(job: Job) -> Counter[bytes | None]:
    return Counter(each.key for each in job.output())


def _admin(job: Job) -> AdminClient:
    return AdminClient({"bootstrap.servers": job.kafka})


def _put(
    job: Job, partition: int, *keys: bytes, aborted: bool = False, topic: str | None = None
) -> None:
    """Put records into a partition, whatever their keys are."""
    into = topic or job.source
    producer = Producer(
        {"bootstrap.servers": job.kafka, "transactional.id": f"{into}-{partition}"}
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for key in keys:
        producer.produce(into, b"{}", key, partition=partition)
    producer.flush(SECONDS)
    if aborted:
        producer.abort_transaction(SECONDS)
    else:
        producer.commit_transaction(SECONDS)


def _keys(lane: int, count: int) -> list[bytes]:
    """Return keys that belong to `lane`."""
    found = [b"key-%d" % number for number in range(count * 20)]
    return [key for key, of in zip(found, homes(found, PARTITIONS), strict=True) if of == lane][
        :count
    ]


def _trim(job: Job, partition: int, offset: int) -> None:
    place = TopicPartition(job.source, partition, offset)
    admin = _admin(job)  # kept: a client takes its requests with it
    admin.delete_records([place])[place].result(SECONDS)


def _make(job: Job, topic: str, partitions: int = 2) -> None:
    admin = _admin(job)
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(SECONDS)
    until(
        lambda: topic in admin.list_topics(timeout=SECONDS).topics,
        within=SECONDS,
        what="the topic is there",
    )


def _delete(job: Job, topic: str) -> None:
    admin = _admin(job)
    admin.delete_topics([topic])[topic].result(SECONDS)
    until(
        lambda: topic not in admin.list_topics(timeout=SECONDS).topics,
        within=SECONDS,
        what="the topic is gone",
    )


def _make_anew(job: Job) -> None:
    _delete(job, job.source)
    _make(job, job.source, 4)


@pytest.mark.parametrize("grouping", ["partitions", "shuffle"])
def test_transactions_that_were_aborted_are_no_records(job: MakeJob, grouping: str) -> None:
    dedup = job().with_(spark={"grouping": grouping})
    (key,) = _keys(0, 1)
    _put(dedup, 0, key)
    _put(dedup, 0, b"x", b"y", aborted=True)
    _put(dedup, 1, b"z", aborted=True)

    lines = dedup.run()

    assert sum(line.rows for line in lines) == 1
    assert _written(dedup) == {key: 1}
    assert dedup.run() == []


def test_a_job_begins_where_the_topic_ended_when_it_was_first_started(job: MakeJob) -> None:
    dedup = job().with_(source={"starting_offsets": "latest"})
    dedup.send(("before", b"{}", []))
    assert dedup.run() == []

    dedup.send(("between", b"{}", []))
    dedup.run()
    dedup.send(("after", b"{}", []))
    dedup.run()

    assert _written(dedup) == {b"between": 1, b"after": 1}


def test_a_job_begins_at_the_offsets_that_it_is_given(job: MakeJob) -> None:
    dedup = job()
    _put(dedup, 2, b"a", b"b", b"c")
    starting = json.dumps({dedup.source: {"2": 1}})

    dedup.with_(source={"starting_offsets": starting}).run()

    assert _written(dedup) == {b"b": 1, b"c": 1}


@pytest.mark.parametrize("grouping", ["partitions", "shuffle"])
def test_records_that_the_topic_deleted_unread_stop_the_job_until_it_may_skip_them(
    job: MakeJob, grouping: str
) -> None:
    dedup = job().with_(spark={"grouping": grouping})
    keys = _keys(1, 5)
    _put(dedup, 1, *keys)
    dedup.with_(source={"starting_offsets": "earliest"}).run()
    more = _keys(1, 9)[5:]
    _put(dedup, 1, *more)
    _trim(dedup, 1, 8)  # five, their control record, and two of four

    with pytest.raises(SourceChanged, match=rf"offsets 6 to 7 of {dedup.source}/1 are deleted"):
        dedup.run()
    assert _written(dedup) == Counter(keys)
    (line,) = dedup.with_(source={"expired": "skip"}).run()

    assert (line.expired, line.rows) == (2, 2)
    assert _written(dedup) == Counter([*keys, *more[2:]])


def test_a_topic_may_come_and_another_go_if_the_operator_consents(
    job: MakeJob, topic: MakeTopic
) -> None:
    dedup, other = job(), topic(2)
    _put(dedup, 0, b"a")
    dedup.run()

    both = dedup.with_(source={"topics": (dedup.source, other)})
    _put(both, 0, b"b")
    both.with_(source={"topics": (other,)}).send(("c", b"{}", []))
    both.run(adopt=True)
    assert _written(dedup) == {b"a": 1, b"b": 1, b"c": 1}

    rest = both.with_(source={"topics": (other,)})
    rest.send(("d", b"{}", []))
    rest.run(adopt=True)

    assert _written(dedup) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}


def test_a_pattern_takes_in_a_topic_that_is_made_later(job: MakeJob) -> None:
    dedup = job()
    more, old = f"{dedup.source}.more", f"{dedup.source}.old"
    _make(dedup, old)
    all_ = dedup.with_(source={"topics": (f"{dedup.source}*",), "starting_offsets": "latest"})
    _put(dedup, 0, b"before")
    assert all_.run() == []
    _put(dedup, 0, b"a")
    all_.run()
    _make(dedup, more)
    _put(dedup, 0, b"b")
    _put(dedup, 1, b"first", b"second", topic=more)
    _put(dedup, 0, b"c", topic=old)

    all_.run()
    _put(dedup, 1, b"third", topic=more)
    all_.run()

    expected = {b"a": 1, b"b": 1, b"c": 1, b"first": 1, b"second": 1, b"third": 1}
    assert _written(dedup) == expected
    assert all_.run() == []

    _delete(dedup, old)
    says = rf'{old} is gone.* add "!{old}" to source.topics'
    with pytest.raises(SourceChanged, match=says):
        all_.run()
    without = all_.with_(source={"topics": (f"{dedup.source}*", f"!{old}")})
    _put(dedup, 0, b"d")
    without.run(adopt=True)

    assert _written(dedup) == {**expected, b"d": 1}


def test_a_pattern_takes_in_a_topic_that_is_made_while_the_job_runs(job: MakeJob) -> None:
    dedup = job()
    more = f"{dedup.source}.more"
    running = dedup.with_(source={"topics": (f"{dedup.source}*",)}, spark={"trigger": "200ms"})
    _put(dedup, 0, b"a")

    with running.running() as failed:
        until(lambda: failed or dedup.output(), within=START_SECONDS, what="it runs")
        _make(dedup, more)
        _put(dedup, 0, b"b", topic=more)
        until(lambda: failed or len(dedup.output()) == 2, within=START_SECONDS, what="b is there")
        _put(dedup, 1, b"c", topic=more)
        until(lambda: failed or len(dedup.output()) == 3, within=START_SECONDS, what="c is there")

    assert _written(dedup) == {b"a": 1, b"b": 1, b"c": 1}


def test_a_pattern_that_matches_nothing_is_refused_at_the_first_start(job: MakeJob) -> None:
    dedup = job()
    both = dedup.with_(source={"topics": (dedup.source, f"{dedup.source}.*")})

    with pytest.raises(BadSettings, match=rf"no topic matches {dedup.source}\.\*: create one"):
        both.run()
    problems = {each.what: each.problem for each in check(both.settings)}
    assert "no topic matches" in (problems["topics"] or "")

    dedup.run()
    _put(dedup, 0, b"a")
    both.run(adopt=True)
    assert _written(dedup) == {b"a": 1}


def test_a_pattern_that_takes_in_what_the_job_writes_is_refused(job: MakeJob) -> None:
    dedup = job()
    output = dedup.settings.output
    for topic in (output.topic, output.retry_topic, output.dead_letter_topic):
        with pytest.raises(ValidationError, match=f'Add "!{topic}" to the topics that are read'):
            dedup.with_(source={"topics": (dedup.source, f"{topic[:-1]}?")})
        dedup.with_(source={"topics": (dedup.source, f"{topic[:-1]}?", f"!{topic}")})


def test_a_topic_that_was_made_anew_is_refused(job: MakeJob) -> None:
    dedup = job()
    _put(dedup, 0, b"a", b"b")
    dedup.run()
    _make_anew(dedup)
    _put(dedup, 0, b"c", b"d", b"e", b"f")

    with pytest.raises(SourceChanged, match="made anew"):
        dedup.run()

    assert _written(dedup) == {b"a": 1, b"b": 1}


@pytest.mark.parametrize("remember", [{}, {"remember": "1h"}])
def test_a_batch_that_was_planned_before_its_topic_was_made_anew_is_refused(
    job: MakeJob, remember: dict[str, str]
) -> None:
    dedup = job(**remember)
    dedup = dedup.with_(source={"starting_offsets": json.dumps({dedup.source: {"0": 0}})})
    _put(dedup, 0, b"a", b"b")
    _trim(dedup, 0, 1)
    with pytest.raises(SourceChanged, match="offsets 0 to 0"):
        dedup.run()
    _make_anew(dedup)
    _put(dedup, 0, b"c", b"d", b"e")

    with pytest.raises(SourceChanged, match="made anew"):
        dedup.run()

    assert _written(dedup) == {}


def test_a_topic_that_is_made_anew_while_the_job_runs_is_refused(job: MakeJob) -> None:
    dedup = job()
    _put(dedup, 0, b"a", b"b")
    dedup.run()
    begun = dedup.checkpoint / "offsets" / "1"
    newest = (dedup.checkpoint / "offsets" / "0").read_text()
    _put(dedup, 0, b"c")
    dedup.run()
    assert begun.read_text() != newest
    _make_anew(dedup)

    with pytest.raises(SourceChanged, match="made anew"):
        dedup.run()


@pytest.mark.parametrize("grouping", ["partitions", "shuffle"])
def test_a_partition_that_comes_later_is_read_from_its_beginning(
    job: MakeJob, grouping: str
) -> None:
    dedup = job().with_(spark={"grouping": grouping})
    (first, second) = _keys(1, 2)
    _put(dedup, 1, first)
    dedup.run()
    admin = _admin(dedup)
    admin.create_partitions([NewPartitions(dedup.source, 6)])[dedup.source].result(SECONDS)
    until(
        lambda: len(admin.list_topics(timeout=SECONDS).topics[dedup.source].partitions) == 6,
        within=SECONDS,
        what="the partitions are there",
    )
    _put(dedup, 5, second)

    dedup.run()

    assert _written(dedup) == {first: 1, second: 1}


def test_a_record_that_lies_elsewhere_is_decided_after_a_trip_through_the_retry_topic(
    job: MakeJob,
) -> None:
    dedup = job().with_(spark={"grouping": "partitions"})
    here, there = _keys(0, 1)[0], _keys(1, 1)[0]
    _put(dedup, 0, here, there)

    (line,) = dedup.run()

    assert (line.rows, line.handled, line.retried, line.misplaced) == (2, 1, 1, 1)
    assert _written(dedup) == {here: 1}
    (moved,) = dedup.retries()
    assert moved.key == there
    delivery = envelope.delivery(moved)
    assert (delivery.attempt, delivery.round) == (1, 0)
    assert delivery.origin == f"{dedup.source}/0/1"


def test_the_shuffle_decides_records_wherever_they_lie(job: MakeJob) -> None:
    dedup = job().with_(spark={"grouping": "shuffle"})
    keys = [*_keys(0, 3), *_keys(1, 3)]
    for partition in range(4):
        _put(dedup, partition, *keys)

    (line,) = dedup.run()

    assert (line.rows, line.handled, line.misplaced) == (24, 6, 12)
    assert _written(dedup) == Counter(keys)


def test_a_batch_that_was_half_written_goes_on_in_the_way_in_which_it_began(job: MakeJob) -> None:
    dedup = job().with_(spark={"grouping": "partitions"})
    here, there = _keys(0, 1)[0], _keys(1, 1)[0]
    late = _keys(1, 3)[1:]
    _put(dedup, 0, here, there)
    _put(dedup, 1, *late)
    starting = json.dumps({dedup.source: {"1": 0}})
    dedup = dedup.with_(source={"starting_offsets": starting})
    _trim(dedup, 1, 1)
    with pytest.raises(SourceChanged, match="offsets 0 to 0"):
        dedup.run()  # one lane is written, the other is not
    assert _written(dedup) == {here: 1}

    anew = dedup.with_(source={"expired": "skip"}, spark={"grouping": "shuffle"})
    (line,) = anew.run()

    assert line.replayed == 1
    assert _written(dedup) == {here: 1, late[1]: 1}
    assert [each.key for each in dedup.retries()] == [there]


def test_a_job_goes_over_to_whole_partitions_when_no_record_lay_elsewhere(job: MakeJob) -> None:
    dedup = job().with_(source={"max_offsets_per_trigger": 1_500})
    for lane in range(PARTITIONS):
        _put(dedup, lane, *_keys(lane, 1_500))

    lines = dedup.run()

    assert len(lines) > 1
    assert {marker.way for marker in dedup.markers().values()} == {"partitions"}
    assert sum(line.handled for line in lines) == 1_500 * PARTITIONS
    assert set(_written(dedup).values()) == {1}


def test_a_job_goes_on_with_the_checkpoint_of_sparks_own_source(job: MakeJob) -> None:
    dedup = job()
    _put(dedup, 0, b"a", b"b", b"c")
    dedup.run()
    pinned = dedup.checkpoint / "dovecote.json"
    fields = json.loads(pinned.read_text())
    del fields["source.began"]
    pinned.write_text(json.dumps(fields))
    for name in ("offsets/0", "commits/0"):
        (dedup.checkpoint / name).parent.joinpath(f".{name[-1]}.crc").unlink()
    (dedup.checkpoint / ".dovecote.json.crc").unlink()
    log = dedup.checkpoint / "offsets" / "0"
    *head, ends = log.read_text().splitlines()
    plain = {
        topic: {p: n for p, n in of.items() if p != "id"} for topic, of in json.loads(ends).items()
    }
    log.write_text("\n".join([*head, json.dumps(plain)]))
    _put(dedup, 0, b"d")

    dedup.run()

    assert _written(dedup) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
