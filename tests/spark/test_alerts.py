"""A real Prometheus reads real jobs: panels and alerts of Spark have data, and alerts fire."""

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from dovecote.devstack.places import free_port
from tests.spark.fix_spark import Job, MakeJob
from tests.spark.fix_stateful import START_SECONDS, T0, MakeStateful, Sent
from tests.support.consuming import open_transaction
from tests.support.fix_stack import MakeTopic
from tests.support.observing import Observing, all_fire, observing, of_parts, require_data
from tests.support.waiting import patient, until

HANDLERS = "tests.unit.spark_jobs.handlers"


def test_every_expression_about_jobs_has_data(
    stateful: MakeStateful, topic: MakeTopic, tmp_path: Path
) -> None:
    clicks, port = topic(2), free_port()
    fields = {"gap": "5s", "grace": "1s", "close_after": "off", "max_lag": "off"}
    job = stateful("sessions", [clicks], **fields).with_(http={"port": port})
    job.send(*(Sent(clicks, f"k{n}", T0, 1, n % 2) for n in range(10)))
    (tmp_path / "prometheus").mkdir()
    with observing(tmp_path / "prometheus") as prometheus, job.running():
        prometheus.watch({"dovecote-spark": [port]})
        until(lambda: job.rows() == 10, within=START_SECONDS, what="all is read")
        require_data(prometheus, of_parts("spark"))


def watched(ends: ExitStack, prometheus: Observing, name: str, job: Job) -> str:
    """Run a job until the end of the block, and return its query once its numbers are seen."""
    port = free_port()
    own = job.with_(http={"port": port}, spark={"trigger": "200ms"})
    ends.enter_context(own.running())
    prometheus.watch({f"dovecote-spark-{name}": [port]})
    query = own.settings.spark.query
    expr = f'dovecote_spark_last_progress_timestamp_seconds{{query="{query}"}} > 0'
    until(partial(prometheus.query, expr), within=START_SECONDS, what=f"{name} works")
    return query


def test_alerts_of_deduplicating_jobs_fire_in_their_troubles(job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "prometheus").mkdir()
    gate = tmp_path / "gate"
    hung = job(handler=f"{HANDLERS}:waits").with_(source={"expired": "skip"})
    dead, slow, held = job(handler=f"{HANDLERS}:by_value"), job(), job()
    quick = held.settings.model_copy(update={"stall_after": timedelta(seconds=2)})
    held = Job(held.kafka, held.folder, quick, held.spark)
    with observing(tmp_path / "prometheus") as prometheus, ExitStack() as ends:
        ends.callback(gate.touch)
        of_dead = watched(ends, prometheus, "dead", dead)
        dead.send(("k", b'{"do": "dead"}', []))
        of_hung = watched(ends, prometheus, "hung", hung)
        hung.send(("k", f'{{"wait_for": "{gate}"}}'.encode(), []))
        slow.send(*((f"k{n}", b"{}", []) for n in range(3_000)))
        few = slow.with_(source={"max_offsets_per_trigger": 4})
        of_slow = watched(ends, prometheus, "slow", few)
        all_fire(
            prometheus,
            {
                ("SparkDeadLetters", of_dead),
                ("SparkStalled", of_hung),
                ("SparkBehind", of_slow),
            },
        )
        # They come while the batch hangs, and are deleted before the next one.
        hung.send(*(("k", b"{}", []) for _ in range(4)))
        (number,) = {each.partition for each in hung.input()}
        place = TopicPartition(hung.source, number, 4)
        admin = AdminClient({"bootstrap.servers": hung.kafka})
        admin.delete_records([place])[place].result(patient(20))
        gate.touch()
        ends.enter_context(open_transaction(held.kafka, held.source))
        of_held = watched(ends, prometheus, "held", held)
        all_fire(prometheus, {("SparkExpired", of_hung), ("SparkHeldBack", of_held)})


def test_alerts_of_jobs_with_state_fire_in_their_troubles(
    stateful: MakeStateful, topic: MakeTopic, tmp_path: Path
) -> None:
    clicks, port = topic(2), free_port()
    fields = {"gap": "5s", "grace": "1s", "close_after": "off", "max_lag": "off"}
    job = stateful("sessions", [clicks], **fields).with_(http={"port": port})
    query = job.settings.spark.query
    places = [(f"k{n}", n % 2) for n in range(10)]
    job.send(*(Sent(clicks, key, T0 + 20_000, 1, at) for key, at in places))
    (tmp_path / "prometheus").mkdir()
    with observing(tmp_path / "prometheus") as prometheus:
        prometheus.watch({"dovecote-spark": [port]})
        largest = "dovecote_spark_largest_bucket_bytes > 0"
        with job.running():
            (found,) = until(
                partial(prometheus.query, largest), within=START_SECONDS, what="the state's size"
            )
        small = job.with_(state={"max_bucket_bytes": int(float(found["value"][1]) * 1.1)})
        with small.running():
            zero = f'dovecote_spark_records_skipped_total{{query="{query}"}} == 0'
            until(partial(prometheus.query, zero), within=START_SECONDS, what="it works again")
            small.send(*(Sent(clicks, key, T0, 1, at) for key, at in places))
            all_fire(prometheus, {("SparkWrongTimes", query), ("SparkStateNearLimit", query)})
