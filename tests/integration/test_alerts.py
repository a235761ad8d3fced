"""A real Prometheus reads real parts: panels have data, and alerts fire in trouble."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from dedup.rules.policies.results import Result
from dovecote.devstack.places import free_port
from dovecote.process.health import HealthReport
from dovecote.process.http.state import serve
from dovecote.process.states import State
from dovecote.push.delivery import shape
from outbox import Event
from outbox.tokens.source import source_of
from proof.identities.provider import Provider
from tests.support.consuming import Handle, consuming, event, open_transaction, produce
from tests.support.delivering import Endpoint, Reply, Request, all_committed, pushing, subscribed
from tests.support.fix_stack import MakeTopic, Servers, new_database
from tests.support.observing import Observing, all_fire, fired, observing, of_parts, require_data
from tests.support.relaying import RelayProcess, Relays, commit, installed, relays
from tests.support.relaying import event as written
from tests.support.unreadable import LIMITS as LIMITS_OF_CLIENTS
from tests.support.unreadable import produce_bomb
from tests.support.waiting import patient, until

OLD_SECONDS = 3_600
LIMITS = {
    "DOVECOTE_RELAY_WAL__WARN_BYTES": "10000000",
    "DOVECOTE_RELAY_WAL__STOP_BYTES": "40000000",
}
QUICK = {"type": "backoff", "base": "50ms", "ceiling": "100ms", "max_attempts": 3}
PATIENT = {**QUICK, "max_attempts": 1_000}

pytestmark = pytest.mark.timeout(900)


class Always:
    """The health of a part that only shows its numbers."""

    def ready(self) -> HealthReport:
        return HealthReport(ok=True, role="", reason="", state=State.IDLE)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Observing]:
    with observing(tmp_path) as running:
        yield running


@contextmanager
def shown(prometheus: Observing, job: str, registry: CollectorRegistry) -> Iterator[None]:
    """Serve numbers of this process, and let Prometheus read them."""
    with serve("127.0.0.1", 0, Always(), registry) as port:
        prometheus.watch({job: [port]})
        yield


def port_of(relay: RelayProcess) -> int:
    relay.until_logged("serving /metrics")
    return int(relay.log.partition("serving ")[2].split()[4].rpartition(":")[2])


def expire(bootstrap: str, topic: str, id_: str) -> None:
    """Let a subscription take one record, and delete what comes after it left."""
    produce(bootstrap, event(topic, "k", 0))
    with Endpoint() as endpoint, pushing(bootstrap, subscribed(topic, endpoint.url, id=id_)):
        all_committed(bootstrap, topic, id_=id_)
    produce(bootstrap, *(event(topic, "k", each) for each in range(1, 5)))
    place = TopicPartition(topic, 0, 4)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([place])[place].result(patient(20))


def send_old(bootstrap: str, topic: str, number: int) -> None:
    """Produce records that were written an hour ago, each of a key of its own."""
    producer = Producer({"bootstrap.servers": bootstrap})
    at = int((time.time() - OLD_SECONDS) * 1000)
    for each in range(number):
        producer.produce(topic, b"{}", f"k{each}".encode(), timestamp=at)
    producer.flush(patient(60))


@contextmanager
def kept_back(dsn: str) -> Iterator[None]:
    """Hold a transaction open, and write 32 MB of log after it: no slot may move."""
    with psycopg.connect(dsn) as open_, psycopg.connect(dsn, autocommit=True) as conn:
        # Only a transaction that has written keeps a slot: decoding knows of no other.
        open_.execute("SELECT pg_logical_emit_message(true, 'x', 'open')")
        for _ in range(32):
            conn.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))")
        yield
        open_.rollback()


def never(_: Event) -> Result | None:
    msg = "the shop is closed"
    raise RuntimeError(msg)


def test_every_expression_has_data_and_no_alert_fires_while_all_is_well(
    stack: Servers, fleet: Relays, topic: MakeTopic, prometheus: Observing
) -> None:
    orders, kafka = topic(), stack.kafka.bootstrap
    running = [fleet.active(), fleet.start()]
    prometheus.watch({"dovecote-relay": [port_of(each) for each in running]})
    with ExitStack() as ends:
        endpoint = ends.enter_context(Endpoint())
        consumer = ends.enter_context(consuming(kafka, orders, group="well")).consumer
        numbers = consumer.metrics.registry
        ends.enter_context(shown(prometheus, "dovecote-consumer", numbers))
        push = ends.enter_context(pushing(kafka, subscribed(orders, endpoint.url))).engine
        ends.enter_context(shown(prometheus, "dovecote-push", push.metrics.registry))
        provider = ends.enter_context(Provider(3_600))
        source = source_of({"identity": provider.text()})
        assert source is not None
        source.require(patient(10))
        done = threading.Event()

        def writing() -> None:
            while not done.wait(0.2):
                commit(fleet.dsn, *(written(orders, each, key=f"k{each}") for each in range(5)))

        writer = threading.Thread(target=writing)
        writer.start()
        ends.callback(writer.join)
        ends.callback(done.set)
        require_data(prometheus, of_parts("relay", "consumer", "push", "kafka_token"))
        assert fired(prometheus) == set()


def test_a_token_that_is_not_renewed_fires_its_alert(prometheus: Observing) -> None:
    with ExitStack() as ends:
        # As for ten minutes in operation: the waits and bounds are shorter here.
        provider = ends.enter_context(Provider(30))
        source = source_of({"identity": provider.text()})
        assert source is not None
        source.require(patient(10))
        ends.enter_context(shown(prometheus, "dovecote-relay-tokens", CollectorRegistry()))
        seen = "dovecote_kafka_token_expiry_seconds"
        until(lambda: prometheus.query(seen), within=20, what="the token is seen")
        provider.failing = 503
        all_fire(prometheus, {("TokenExpiring", "oidc")})
        assert fired(prometheus) == {("TokenExpiring", "oidc")}


def test_alerts_of_the_relay_fire_in_its_troubles(
    stack: Servers, topic: MakeTopic, prometheus: Observing, tmp_path: Path
) -> None:
    orders, kafka = topic(), stack.kafka.bootstrap
    with ExitStack() as ends:

        def outbox(name: str, bootstrap: str = kafka, capture: str = "table") -> Relays:
            dsn = installed(ends.enter_context(new_database(stack)), capture)
            found = ends.enter_context(relays(tmp_path / name, dsn, bootstrap))
            found.name = f"{name}-{found.name}"
            return found

        def watched(name: str, *running: RelayProcess) -> None:
            prometheus.watch({f"dovecote-relay-{name}": [port_of(each) for each in running]})

        down, parked, away = outbox("down"), outbox("parked"), outbox("away", "127.0.0.1:9")
        slow, log = outbox("slow"), outbox("log", capture="wal")
        watched("log", log.active(environ=LIMITS))
        retained, limit = (f"dovecote_relay_slot_{each}_bytes" for each in ("retained", "limit"))
        share = f'{retained} / {limit}{{outbox="{log.name}"}} < 1'
        until(lambda: prometheus.query(share), within=20, what="the limit of the slot")
        ends.enter_context(kept_back(log.dsn))
        for name, found in (("down", down), ("parked", parked)):
            watched(name, found.active(), found.start())
        # Prometheus has seen both before they end.
        active = f'sum(dovecote_relay_active{{outbox="{down.name}"}}) == 1'
        until(lambda: prometheus.query(active), within=20, what="the relay is seen")
        for each in down.started:
            each.kill()
        parked.started[1].kill()
        watched("away", away.start())
        commit(parked.dsn, written("missing", 1))
        watched("slow", slow.active(batch_rows=1))
        for _ in range(3):
            commit(slow.dsn, *(written(orders, each) for each in range(4_000)))

        wanted = {
            ("PartDown", "dovecote-relay-down"),
            ("RelayNotActive", down.name),
            ("ProcessDown", "dovecote-relay-parked"),
            ("RelayParked", parked.name),
            ("RelayStalled", away.name),
            ("RelayLagging", slow.name),
            ("RelaySlotNearLimit", log.name),
        }
        all_fire(prometheus, wanted)


def test_alerts_of_consumers_and_push_fire_in_their_troubles(
    stack: Servers,
    topic: MakeTopic,
    prometheus: Observing,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka, usual = stack.kafka.bootstrap, shape.consumer_settings
    monkeypatch.setattr(
        shape, "consumer_settings", lambda *given: {**usual(*given), "stall_after": "2s"}
    )
    hung, late, dead, storm, open_, sent, old, stuck, gone = (topic() for _ in range(9))
    produce_bomb(kafka, stuck)
    expire(kafka, gone, "expired")
    pause, gate = threading.Event(), threading.Event()

    def hangs(_: Event) -> Result | None:
        gate.wait()
        return None

    def slow(_: Event) -> Result | None:
        pause.wait(0.2)
        return None

    with ExitStack() as ends:

        def consumes(name: str, source: str, handler: Handle, **given: Any) -> None:
            consumer = ends.enter_context(consuming(kafka, source, handler, group=name, **given))
            numbers = consumer.consumer.metrics.registry
            ends.enter_context(shown(prometheus, f"dovecote-consumer-{name}", numbers))

        ends.enter_context(open_transaction(kafka, open_))
        given_up = {"dead_letter_topic": topic(), "base": "10ms", "ceiling": "20ms"}
        consumes("hung", hung, hangs)
        consumes("late", late, slow)
        consumes("dead", dead, never, retries={**given_up, "max_attempts": 1})
        consumes("storm", storm, never, retries={**given_up, "max_attempts": 1_000_000})
        consumes("held", open_, slow, stall_after="2s")
        consumes("without", "is-not-there", slow)
        consumes("stuck", stuck, slow, kafka=LIMITS_OF_CLIENTS, stall_after="2s")
        answers = {
            "gone": lambda _: Reply(410),
            "giving-up": lambda _: Reply(400),
            "hanging": lambda _: Reply(after=600),
            "well": lambda _: Reply(),
        }

        def endpoint(name: str) -> str:
            answer: Callable[[Request], Reply] = answers[name]
            return ends.enter_context(Endpoint(answer)).url

        closed = f"http://127.0.0.1:{free_port()}/hook"
        push = ends.enter_context(
            pushing(
                kafka,
                subscribed(sent, endpoint("gone"), id="gone"),
                subscribed(sent, endpoint("giving-up"), id="giving-up", retry=QUICK),
                subscribed(sent, closed, id="closed", retry=PATIENT),
                subscribed(sent, endpoint("hanging"), id="hanging", endpoint={"timeout": "500s"}),
                subscribed(old, endpoint("well"), id="old"),
                subscribed(open_, endpoint("well"), id="held"),
                subscribed(stuck, endpoint("well"), id="stuck"),
                subscribed(gone, endpoint("well"), id="expired"),
                brokers={"default": {"bootstrap.servers": kafka, **LIMITS_OF_CLIENTS}},
            )
        ).engine
        ends.enter_context(shown(prometheus, "dovecote-push", push.metrics.registry))
        ends.callback(gate.set)  # before the consumers end
        for name in ("dovecote_push_lag_rows", 'dovecote_consumer_partitions{group="dead"} == 1'):
            until(partial(prometheus.query, name), within=30, what=f"{name} is seen")
        produce(kafka, *(event(hung, "k", each) for each in range(3)))
        produce(kafka, *(event(dead, f"k{each}", each) for each in range(3)))
        produce(kafka, *(event(storm, f"k{each}", each) for each in range(20)))
        produce(kafka, *(event(sent, f"k{each}", each) for each in range(20)))
        send_old(kafka, late, 6_000)
        send_old(kafka, old, 500)
        wanted = {
            ("ConsumerDeadLetters", "dead"),
            ("PushDisabled", "gone"),
            ("PushDeadLetters", "giving-up"),
            ("PushLate", "old"),
            ("ConsumerUnmoved", "hung"),
            ("ConsumerLagging", "late"),
            ("ConsumerRetryStorm", "storm"),
            ("ConsumerHeldBack", "held"),
            ("ConsumerNoPartitions", "without"),
            ("PushCircuitOpen", "closed"),
            ("PushStalled", "hanging"),
            ("ConsumerStuck", "stuck"),
            ("PushStuck", "stuck"),
            ("PushHeldBack", "held"),
            ("PushExpired", "expired"),
        }
        all_fire(prometheus, wanted)
