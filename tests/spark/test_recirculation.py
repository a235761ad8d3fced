"""
A failed record comes back when it is due, with the same id, until it is done or a dead letter.
"""

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dedup.rules.identity import Identity, identity
from outbox.envelope import ATTEMPT, ERROR, ID, ORIGIN, ROUND, Delivery, Record, delivery
from spark_jobs.jobs import together
from spark_jobs.jobs.check import check
from spark_jobs.query.progress import BatchLine
from tests.spark.fix_spark import Job, MakeJob, persistently
from tests.support.waiting import patient, until

HANDLER = "tests.unit.spark_jobs.handlers:until_finished"
ATTEMPTS = 3
SECONDS = 280.0


@pytest.fixture
def loop(job: MakeJob) -> Job:
    """A job that recirculates failed records soon."""
    made = job(handler=HANDLER)
    return made.with_(
        retry={"max_attempts": ATTEMPTS, "base": "400ms", "ceiling": "1s"},
        recirculation={"run": "together", "trigger": "500ms"},
        state={"buckets": 3},
        spark={"trigger": "300ms"},
    )


@contextmanager
def _running(job: Job) -> Iterator[tuple[list[BaseException], list[BatchLine]]]:
    """Run both queries meanwhile; yield their errors and their lines."""
    assert job.spark is not None
    stop, failed, lines = threading.Event(), list[BaseException](), list[BatchLine]()
    spark = job.spark

    def run() -> None:
        try:
            persistently(lambda: together.run(job.settings, spark, show=lines.append, stop=stop))
        except BaseException as error:  # noqa: BLE001  # raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed, lines
    finally:
        stop.set()
        thread.join(patient(60))
    if failed:
        raise failed[0]


def _completed(job: Job, lines: Sequence[BatchLine]) -> int:
    """Return how many records were handled or became dead letters, according to the job itself."""
    main = job.settings.spark.query
    return sum(line.handled + line.dead for line in lines if line.query == main)


def _by_id(records: Sequence[Record]) -> dict[str, list[tuple[Record, Delivery]]]:
    found: dict[str, list[tuple[Record, Delivery]]] = defaultdict(list)
    for each in records:
        found[identity(each).id].append((each, delivery(each)))
    return {id_: sorted(of, key=lambda one: one[1].round) for id_, of in found.items()}


def _events(count: int) -> dict[str, dict[str, Any]]:
    """Return values by id; each says how often it fails, or asks to come again."""
    dice = random.Random(11)
    found: dict[str, dict[str, Any]] = {}
    for n in range(count):
        found[f"e{n}"] = {
            "again": dice.choice([0, 0, 0, 1, 4]),
            "fails": dice.choice([0, 0, 1, 2, 9]),
            "dead": dice.random() < 0.1,
        }
    return found


def test_every_record_goes_round_until_it_is_done_or_has_had_its_attempts(loop: Job) -> None:
    events = _events(60)
    loop.send(
        *((f"k-{id_}", json.dumps(value).encode(), [(ID, id_.encode())])
          for id_, value in events.items())
    )  # fmt: skip

    wanted = len(events) + sum(value["again"] for value in events.values())
    with _running(loop) as (failed, lines):
        until(lambda: failed or _completed(loop, lines) >= wanted, within=SECONDS, what="all done")

    done, dead = _by_id(loop.output()), _by_id(loop.dead_letters())
    main, retried = _by_id(loop.input()), _by_id(loop.retries())
    patience = loop.settings.backoff()
    for id_, value in events.items():
        # `Again` came round `again` times; then it failed, and each failure was an attempt.
        failures = min(value["fails"], ATTEMPTS)
        rounds = value["again"] + min(failures, ATTEMPTS - 1)
        attempts = min(failures + 1, ATTEMPTS)
        is_dead = value["dead"] or value["fails"] >= ATTEMPTS
        ((_, last),) = (dead if is_dead else done)[id_]
        assert id_ not in (done if is_dead else dead)
        assert (last.round, last.attempt) == (rounds, attempts), value
        assert last.error == (
            None if not failures and not is_dead
            else "never" if value["dead"] and failures < ATTEMPTS else "not yet"
        ) or not is_dead  # fmt: skip
        # It was on the main topic once as it was sent, and once more for each round: never twice.
        assert [state.round for _, state in main[id_]] == list(range(rounds + 1))
        assert [state.round for _, state in retried.get(id_, [])] == list(range(1, rounds + 1))
        first = main[id_][0][0]
        for (waited, state), (back, _) in zip(retried.get(id_, []), main[id_][1:], strict=True):
            assert (back.key, back.value, back.headers) == (
                waited.key,
                waited.value,
                waited.headers,
            )
            assert state.origin == f"{first.topic}/{first.partition}/{first.offset}"
            assert state.not_before is not None
            assert state.first_seen is not None
            assert back.timestamp >= state.not_before
            assert state.error == (None if state.round <= value["again"] else "not yet")
            if state.round == value["again"] + 1 == 1:  # the first failure: its wait is known
                wait = patience.wait(Identity(first.topic, id_), attempt=1).total_seconds() * 1000
                assert state.not_before == state.first_seen + round(wait)
    assert {*done, *dead} == set(events)


def test_who_is_to_come_again_wins_its_key_in_the_batch(loop: Job) -> None:
    again = json.dumps({"again": 1}).encode()
    loop.send(("k", again, [(ID, b"first")]), ("k", b"{}", [(ID, b"second")]))

    with _running(loop) as (failed, lines):
        until(lambda: failed or _completed(loop, lines) == 2, within=SECONDS, what="it is done")

    assert [identity(each) for each in loop.output()] == [(loop.source, "first", 1)]
    first = next(line for line in lines if line.query == loop.settings.spark.query)
    assert (first.handled, first.retried, first.skipped) == (1, 0, {"superseded": 1})


def test_a_record_goes_back_to_the_topic_it_came_from(loop: Job, job: MakeJob) -> None:
    other = job().settings.output.topic
    both = loop.with_(source={"topics": (loop.source, other)})
    fails = json.dumps({"fails": 1}).encode()
    both.send(("a", fails, [(ID, b"one")]))
    Job(both.kafka, both.folder, both.settings).with_(source={"topics": (other,)}).send(
        ("b", fails, [(ID, b"other")])
    )

    with _running(both) as (failed, lines):
        until(lambda: failed or _completed(both, lines) == 2, within=SECONDS, what="both done")

    rounds = Counter(identity(each) for each in both.input())
    assert rounds == {(both.source, "one", 0): 1, (both.source, "one", 1): 1}
    assert {dict(each.headers)[ERROR] for each in both.output()} == {b"not yet"}


def test_a_record_goes_back_by_a_pattern_if_its_topic_exists(loop: Job, job: MakeJob) -> None:
    other = job().settings.output.topic
    both = loop.with_(source={"topics": (loop.source, f"{other}*")})
    fails = json.dumps({"fails": 1}).encode()
    missing = f"{other}.missing/0/0".encode()
    both.send(("a", fails, [(ID, b"lost"), (ATTEMPT, b"1"), (ROUND, b"0"), (ORIGIN, missing)]))
    by_name = Job(both.kafka, both.folder, both.settings).with_(source={"topics": (other,)})
    by_name.send(("b", fails, [(ID, b"other")]))

    with _running(both) as (failed, lines):
        until(lambda: failed or _completed(both, lines) == 2, within=SECONDS, what="both done")

    # The first names no source, and so has the topic of the origin that it claims to have.
    for given, source, id_ in ((both, f"{other}.missing", "lost"), (by_name, other, "other")):
        rounds = [Identity(source, id_, round_) for round_ in (0, 1)]
        assert [identity(each) for each in given.input()] == rounds


def test_a_check_looks_at_the_second_query_too(loop: Job) -> None:
    query = f"{loop.settings.spark.query}.delay"
    Path(f"{loop.checkpoint}.delay").touch()

    found = {finding.what: finding.problem for finding in check(loop.settings)}

    assert found[f"marker topic of {query}"] is None
    assert "is not a folder" in (found[f"checkpoint of {query}"] or "")
