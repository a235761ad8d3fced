"""Records come to an endpoint: in order per key, signed, again where it failed, none lost."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

import psycopg
import pytest
from confluent_kafka import Producer
from standardwebhooks.webhooks import Webhook

from tests.support.compacting import compacted
from tests.support.consuming import end_of, event, produce, transact
from tests.support.delivering import (
    Endpoint,
    Reply,
    Request,
    all_committed,
    first_attempts,
    group,
    install_held,
    pushing,
    subscribed,
)
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  # of the public test vectors


POLL = 2.0
"""How long an idle poll takes in a test that must not wait for it; by itself, a twentieth."""
QUICK = {"type": "backoff", "base": "20ms", "ceiling": "100ms", "max_attempts": 5}


def test_records_come_signed_as_cloudevents_in_order_per_key_and_are_committed(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(2), stack.kafka.bootstrap
    produce(kafka, *(event(name, f"k{k}", n) for n in range(20) for k in range(10)))
    with Endpoint() as endpoint:
        work = subscribed(
            name, endpoint.url, format="cloudevents_binary", signing={"secrets": [SECRET]}
        )
        with pushing(kafka, work) as push:
            endpoint.has_got(200)
            for partition in (0, 1):
                all_committed(kafka, name, partition)
            assert push.snapshot(name).delivered == 200
            added = "dovecote_push_added_seconds_count", {"subscription": name}
            assert push.engine.metrics.registry.get_sample_value(*added) == 200
        assert first_attempts(endpoint) == {f"k{k}": list(range(20)) for k in range(10)}
        for request in endpoint.requests:
            body = Webhook(SECRET).verify(request.body, request.headers)
            assert body == json.loads(request.body)
            said = [request.headers[name] for name in ("ce-id", "ce-source")]
            assert request.headers["webhook-id"] == "@".join(said)
            assert request.headers["content-type"] == "application/json"
    assert endpoint.connections <= 64


def test_a_failing_key_waits_in_order_while_others_go_on_and_each_event_has_one_id(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    times: Counter[str] = Counter()

    def answer(request: Request) -> Reply:
        id_ = request.event_id
        times[id_] += 1
        return Reply(503 if id_.startswith("bad-") and times[id_] <= 2 else 200)

    produce(kafka, *(event(name, key, n) for n in range(4) for key in ("bad", "good")))
    with Endpoint(answer) as endpoint:
        signing = {"secrets": [SECRET]}
        with pushing(kafka, subscribed(name, endpoint.url, retry=QUICK, signing=signing)) as push:
            endpoint.has_got(4 + 4 * 3)
            all_committed(kafka, name)
            numbers = [a.number for a in push.book.attempts if a.event_id == "bad-1"]
        ids = [r.event_id for r in endpoint.requests]
        assert [id_ for id_ in ids if id_.startswith("bad-")] == [
            f"bad-{n}" for n in range(4) for _ in range(3)
        ]
        assert numbers == [1, 2, 3]
        of_bad = [r for r in endpoint.requests if r.event_id == "bad-0"]
        # The good key's first records did not wait for the bad one's last attempt.
        assert ids.index("good-3") < len(ids) - 4
        for request in of_bad:
            Webhook(SECRET).verify(request.body, request.headers)


def test_records_are_found_behind_gaps_of_transactions_and_aborts_in_bundles(
    stack: Servers, topic: MakeTopic
) -> None:
    # Defect 1: offsets were taken for numbers, and a gap locked the partition for ever.
    name, kafka = topic(), stack.kafka.bootstrap
    for n in range(12):
        transact(kafka, *(event(name, key, n) for key in ("a", "b")), commit=n % 3 != 2)
    kept = [n for n in range(12) if n % 3 != 2]
    order = {"type": "per_partition", "concurrency_factor": 3}
    with Endpoint() as endpoint, pushing(kafka, subscribed(name, endpoint.url, order=order)):
        endpoint.has_got(16)
        all_committed(kafka, name)
        found = first_attempts(endpoint)
        assert {key: sorted(numbers) for key, numbers in found.items()} == {"a": kept, "b": kept}


def test_what_compaction_removed_does_not_stop_a_bundle(tmp_path: Path) -> None:
    # Defect 1 again: offsets that are gone for good.
    order = {"type": "per_partition", "concurrency_factor": 3}
    with compacted(tmp_path) as (kafka, name), Endpoint() as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, order=order)):
            all_committed(kafka, name)
        assert len(endpoint.requests) < end_of(kafka, name)


def test_an_endpoint_that_never_answers_holds_up_no_other(
    stack: Servers, topic: MakeTopic
) -> None:
    silent, well, kafka = topic(), topic(), stack.kafka.bootstrap
    for name in (silent, well):
        produce(kafka, *(event(name, f"k{k}", n) for n in range(10) for k in range(50)))
    with Endpoint() as black_hole, Endpoint() as endpoint:
        black_hole.gate.clear()
        with pushing(
            kafka,
            subscribed(silent, black_hole.url, endpoint={"timeout": "5s"}),
            subscribed(well, endpoint.url),
        ) as push:
            black_hole.has_got(1)
            endpoint.has_got(500)
            # An answer is counted after the endpoint has given it.
            until(lambda: push.snapshot(well).delivered == 500, within=4, what="500 deliveries")
            assert push.snapshot(silent).delivered == 0
            black_hole.gate.set()
        assert black_hole.most_in_flight <= 64


def test_a_bundle_of_one_keeps_the_order_of_the_partition_through_retries(
    stack: Servers, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dedup.rules.lanes.pace._IDLE_SECONDS", POLL)
    name, kafka = topic(), stack.kafka.bootstrap
    failed: set[str] = set()

    def answer(request: Request) -> Reply:
        id_ = request.event_id
        if id_ in {"a-1", "b-3"} and id_ not in failed:
            failed.add(id_)
            return Reply(500)
        return Reply()

    produce(kafka, *(event(name, key, n) for n in range(5) for key in ("a", "b")))
    order = {"type": "per_partition", "concurrency_factor": 1}
    retry = {"type": "fixed", "delay": "30ms"}
    with Endpoint(answer) as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, order=order, retry=retry)):
            endpoint.has_got(12)
            all_committed(kafka, name)
        ids = list(dict.fromkeys(r.event_id for r in endpoint.requests))
        assert ids == [f"{key}-{n}" for n in range(5) for key in ("a", "b")]
        assert endpoint.most_in_flight == 1
        # Each waits for the commit of the one before, which waits for no poll.
        gaps = [later.at - at.at for at, later in pairwise(endpoint.requests)]
        assert median(gaps) < POLL / 2


def test_keys_may_be_any_bytes(stack: Servers, topic: MakeTopic) -> None:
    # Defect 2: a key that was no 8-byte number took the whole consumer down.
    name, kafka = topic(), stack.kafka.bootstrap
    keys = [b"text", b"\xff\xfe\x00\r\nX: y", b"", None, b"12345678", "ü.€".encode()]
    producer = Producer({"bootstrap.servers": kafka})
    for key in keys:
        producer.produce(name, b"v", key)
    assert producer.flush(patient(20)) == 0
    with Endpoint() as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, metadata_headers=True)):
            endpoint.has_got(len(keys))
            all_committed(kafka, name)
        told = {r.headers["qoh-message-number"]: r.headers for r in endpoint.requests}
        assert [told[str(n)].get("qoh-message-key") for n in range(len(keys))] == [
            "text",
            "%EF%BF%BD%EF%BF%BD%00%0D%0AX: y",
            "",
            None,
            "12345678",
            "%C3%BC.%E2%82%AC",
        ]
        assert told["0"]["qoh-consumer"] == f"{name}_{group(name)}"
        assert "x" not in told["1"]


def test_explicit_partitions_are_delivered_and_others_are_not(
    stack: Servers, topic: MakeTopic
) -> None:
    # Defect 3: records of explicit partitions were dropped without a word.
    name, kafka = topic(3), stack.kafka.bootstrap
    for partition in range(3):
        events = [event(name, f"p{partition}", n) for n in range(5)]
        produce(kafka, *events, partition=partition)
    partitions = [{"topic": name, "numbers": [0, 2, 7]}]
    with Endpoint() as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, partitions=partitions)) as push:
            endpoint.has_got(10)
            all_committed(kafka, name, 0)
            all_committed(kafka, name, 2)
            produce(kafka, event(name, "p2", 5), partition=2)
            endpoint.has_got(11)
            why = f"topic {name!r} cannot be read: it has no partition 7"
            until(lambda: push.snapshot(name).trouble == why, within=10, what=why)
        assert first_attempts(endpoint) == {"p0": list(range(5)), "p2": list(range(6))}


def test_explicit_partitions_are_one_processs_at_a_time(
    stack: Servers, topic: MakeTopic, database: str
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    held = install_held(database)
    with Endpoint() as endpoint:
        work = subscribed(name, endpoint.url, partitions=[{"topic": name, "numbers": [0]}])
        with pushing(kafka, work, held=held) as one:
            produce(kafka, event(name, "k", 0))
            endpoint.has_got(1)
            with pushing(kafka, work, held=held) as two:
                produce(kafka, *(event(name, "k", n) for n in range(1, 50)))
                endpoint.has_got(50)
                all_committed(kafka, name)
                one.engine.stop()
                produce(kafka, event(name, "k", 50))
                endpoint.has_got(51)
                # The endpoint may have a request whose answer the engine does not have yet.
                until(lambda: two.snapshot(name).delivered == 1, within=10, what="one delivery")
        assert first_attempts(endpoint) == {"k": list(range(51))}
        with pushing(kafka, work, held=held):
            end_sessions(database)
            produce(kafka, event(name, "k", 51))
            endpoint.has_got(52)


@pytest.mark.parametrize("status", [None, 302, 404, 500])
def test_n_resends_are_n_after_the_first_whatever_went_wrong_and_then_a_dead_letter(
    stack: Servers, topic: MakeTopic, status: int | None
) -> None:
    # Defects 4 and 5: without an answer it was sent for ever, n was off by one, 3xx was success.
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, event(name, "k", 0), event(name, "k", 1))

    def answer(request: Request) -> Reply | None:
        if request.event_id == "k-1":
            return Reply()
        return None if status is None else Reply(status, {"Location": "/elsewhere"})

    retry = {"type": "fixed", "delay": "10ms", "resends": 3}
    with Endpoint(answer) as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, retry=retry)) as push:
            endpoint.has_got(5)
            all_committed(kafka, name)
            until(lambda: push.snapshot(name).dead == 1, within=5, what="counted as dead")
        ids = [r.event_id for r in endpoint.requests]
        assert ids == ["k-0"] * 4 + ["k-1"]
        assert {r.target for r in endpoint.requests} == {"/hook"}
    (letter,) = consume(kafka, f"dovecote.push.{name}.dead")
    headers = dict(letter.headers() or [])
    assert headers["ce_id"] == b"k-0"
    assert headers["dovecote_attempt"] == b"4"
    assert headers["dovecote_group"] == group(name).encode()
    outcomes = [a.outcome for a in push.book.attempts if a.event_id == "k-0"]
    assert outcomes == ["retry", "retry", "retry", "dead"]


def test_as_many_requests_are_in_flight_as_the_factor_says(
    stack: Servers, topic: MakeTopic
) -> None:
    # Defect 6: whatever the factor, two requests were sent at a time.
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, *(event(name, None, n) for n in range(90)))
    order = {"type": "per_partition", "concurrency_factor": 40}
    with Endpoint() as endpoint:
        endpoint.gate.clear()
        with pushing(kafka, subscribed(name, endpoint.url, order=order)):
            endpoint.has_got(40)
            endpoint.gate.set()
            endpoint.has_got(90)
            all_committed(kafka, name)
        assert endpoint.most_in_flight == 40
        assert endpoint.connections == 40


def test_connections_are_kept_over_errors(stack: Servers, topic: MakeTopic) -> None:
    # Defect 7, and H15: each error cost a connection, until there were no more ports.
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, *(event(name, "k", n) for n in range(30)))
    body = b"x" * 10_000

    def answer(request: Request) -> Reply:
        return Reply(200 if request.event_id in seen else 500, body=body)

    seen: set[str] = set()

    def once(request: Request) -> Reply:
        reply = answer(request)
        seen.add(request.event_id)
        return reply

    with Endpoint(once) as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, retry=QUICK)):
            endpoint.has_got(60)
            all_committed(kafka, name)
        assert endpoint.connections == 1


def test_retry_after_is_obeyed(stack: Servers, topic: MakeTopic) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, event(name, "k", 0))
    replies = iter([Reply(429, {"Retry-After": "1"}), Reply(503, {"Retry-After": "1"}), Reply()])
    with Endpoint(lambda _: next(replies)) as endpoint:
        retry = {"type": "backoff", "base": "200s", "ceiling": "200s"}
        with pushing(kafka, subscribed(name, endpoint.url, retry=retry)):
            endpoint.has_got(3)
        first, second, third = (request.at for request in endpoint.requests)
        assert 1.0 <= second - first < 100.0
        assert 1.0 <= third - second < 100.0


def end_sessions(dsn: str) -> None:
    """End all other sessions of a database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
