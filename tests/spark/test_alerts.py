"""A real Prometheus reads a real job: every panel and alert of Spark has data."""

from pathlib import Path

from dovecote.devstack.places import free_port
from tests.spark.fix_stateful import START_SECONDS, T0, MakeStateful, Sent
from tests.support.fix_stack import MakeTopic
from tests.support.observing import observing, of_parts, require_data
from tests.support.waiting import until


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
