"""The console sees the trouble of running parts within seconds, and sees that it has gone."""

import time
from pathlib import Path

from dovecote.devstack import Stack
from outbox import Event
from tests.support.console_parts import Fleet, Shown, console, ended, fleet
from tests.support.delivering import Endpoint, Reply
from tests.support.relaying import commit, event
from tests.support.topics import delete_topic, make_topic
from tests.support.waiting import until

SHOWN_WITHIN = 5.0


def test_each_trouble_is_shown_within_seconds_and_gone_when_it_is_mended(
    own_stack: Stack, tmp_path: Path
) -> None:
    bootstrap = own_stack.kafka.bootstrap
    make_topic(bootstrap, "orders", max_message_bytes="3000")
    make_topic(bootstrap, "refunds")
    answers = {"status": 204}
    with (
        Endpoint(lambda _: Reply(answers["status"])) as endpoint,
        fleet(tmp_path, own_stack.postgres.dsn, bootstrap) as parts,
    ):
        relay, consumer, _ = parts.relay(), parts.consumer(), parts.pushing()
        _subscribe(parts, endpoint, "hook", "orders")
        with console(parts.settings(relay)) as shown:
            commit(parts.dsn, *(event("orders", n) for n in range(5)))
            _all_well(shown)
            _unauthorized(shown, parts, answers)
            _missing_topic(shown, parts, endpoint)
            _parked(shown, parts)
            ended(consumer)
            _shows(shown, "consumer/shipping", "does not answer")
            parts.consumer()
            _gone(shown, "consumer/shipping")
            own_stack.kafka.kill()
            _shows(shown, "kafka/kafka", "Kafka does not answer")
            green = {"working", "idle", "standby"}
            until(
                lambda: shown.states()["topic/orders"] not in green,
                within=30,
                what="nothing is said of its topics",
            )
            own_stack.kafka.start()
            _gone(shown, "kafka/kafka")
            _all_well(shown)


def _subscribe(parts: Fleet, endpoint: Endpoint, id_: str, topic: str) -> None:
    told = {
        "id": id_,
        "topics": [topic],
        "endpoint": {"url": endpoint.url},
        "retry": {"type": "fixed", "delay": "300ms", "resends": 1_000},
    }
    answer = parts.push("POST", "/subscriptions", told)
    assert answer.status == 201, answer


def _all_well(shown: Shown) -> None:
    until(lambda: not shown.troubles(), within=60, what="no trouble")
    green = {"working", "idle", "standby"}
    until(lambda: set(shown.states().values()) <= green, within=60, what="all green")


def _unauthorized(shown: Shown, parts: Fleet, answers: dict[str, int]) -> None:
    answers["status"] = 401
    commit(parts.dsn, event("orders", 100))
    _shows(shown, "push/main/hook", "401")
    answers["status"] = 204
    _gone(shown, "push/main/hook", within=90)


def _missing_topic(shown: Shown, parts: Fleet, endpoint: Endpoint) -> None:
    _subscribe(parts, endpoint, "refunds", "refunds")
    until(lambda: "topic/refunds" in shown.states(), within=30, what="refunds is drawn")
    delete_topic(parts.bootstrap, "refunds")
    _shows(shown, "topic/refunds", "does not exist")
    make_topic(parts.bootstrap, "refunds")
    _gone(shown, "topic/refunds")
    assert parts.push("DELETE", "/subscriptions/refunds").status == 200


def _parked(shown: Shown, parts: Fleet) -> None:
    commit(parts.dsn, Event(topic="orders", type="Large", key="bad", value=" " * 5_000))
    _shows(shown, "outbox/shop", "parked")
    letters = shown.get("/api/dead?part=outbox/shop")["letters"]
    assert len(letters) == 1
    assert letters[0]["reason"]
    chosen = {"letters": [{"part": letters[0]["part"], "place": letters[0]["place"]}]}
    status, told = shown.post("/api/dead/drop", chosen)
    assert (status, told["failed"]) == (200, []), told
    _gone(shown, "outbox/shop", within=90)
    said = [(each["action"], each["by"]) for each in shown.get("/api/log")["entries"]]
    assert ("drop", "local") in said


def _shows(shown: Shown, part: str, text: str) -> None:
    began = time.monotonic()
    until(
        lambda: text in shown.troubles().get(part, ""),
        within=SHOWN_WITHIN * 4,
        what=f"{part}: {text}",
    )
    # Shown with `-s`.
    print(f"{part} ({text}) is shown after {time.monotonic() - began:.1f} s")  # noqa: T201


def _gone(shown: Shown, part: str, *, within: float = 30) -> None:
    until(lambda: part not in shown.troubles(), within=within, what=f"{part} is well again")
