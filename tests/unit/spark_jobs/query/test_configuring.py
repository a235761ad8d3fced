"""The configuration with which Spark runs: whose word counts, and what is said of it."""

import pytest

from spark_jobs.query.configuring import configuration, remarks
from spark_jobs.query.settings import SparkSettings


def settings(**conf: str) -> SparkSettings:
    """Return settings with this configuration; `_` is a dot."""
    named = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    return SparkSettings(query="orders", checkpoint="s3a://c/orders", conf=named)


def test_what_spark_submit_says_is_no_default_of_ours() -> None:
    given = {
        "spark.ui.enabled": "true",
        "spark.app.name": "my-name",
        "spark.log.level": "INFO",
        "spark.sql.session.timeZone": "Asia/Tokyo",
    }

    found = configuration(settings(), master=None, given=given)

    assert not given.keys() & found.keys()


def test_spark_has_its_page_on_a_cluster_and_none_for_a_local_job() -> None:
    assert "spark.ui.enabled" not in configuration(settings(), master=None)
    assert configuration(settings(), master="local[2]")["spark.ui.enabled"] == "false"


def test_a_job_that_spark_submit_named_by_its_file_has_the_name_of_its_query() -> None:
    for given in ({}, {"spark.app.name": "dedup_stream.py"}):
        found = configuration(settings(), master=None, given=given)
        assert found["spark.app.name"] == "dovecote orders"


def test_jars_of_spark_submit_and_of_the_settings_are_joined() -> None:
    given = {"spark.jars": "a.jar,b.jar"}

    found = configuration(settings(jars="b.jar,c.jar"), master=None, given=given)

    assert found["spark.jars"] == "a.jar,b.jar,c.jar"
    assert "spark.jars" not in configuration(settings(), master=None)


def test_a_cluster_logs_warnings_unless_somebody_wants_more() -> None:
    found = configuration(settings(), master=None)

    assert found["spark.log.level"] == "WARN"
    assert found["spark.executor.syncLogLevel.enabled"] == "true"
    assert "spark.log.level" not in configuration(settings(), master="local[2]")
    chosen = configuration(settings(log_level="INFO"), master=None)
    assert chosen["spark.log.level"] == "INFO"


def test_what_the_settings_override_and_what_comes_too_late_is_said() -> None:
    given = {
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.sql.shuffle.partitions": "200",
        "spark.sql.adaptive.enabled": "true",
    }
    conf = settings(
        executor_memory="2g", executor_cores="2", driver_memory="4g", jars_packages="a:b:1"
    )

    late = "in [spark.conf] comes too late for the driver: give it to spark-submit"
    assert remarks(conf, given) == [
        f"spark.driver.memory {late}",
        "spark.executor.memory in [spark.conf] overrides what spark-submit or the cluster says",
        f"spark.jars.packages {late}",
        "spark.sql.adaptive.enabled is false, and not true: it is the same in every job",
        "spark.sql.shuffle.partitions is 4, and not 200: it is the same in every job",
    ]
    assert remarks(conf, {}) == []


def test_a_secret_is_in_no_remark() -> None:
    name = "spark.hadoop.fs.s3a.secret.key"
    conf = SparkSettings.model_validate(
        {"query": "q", "checkpoint": "c", "conf": {name: {"env": "KEY"}}},
        context={"environ": {"KEY": "tops3cret"}},
    )

    found = remarks(conf, {name: "another"})

    assert found
    assert not any("tops3cret" in each or "another" in each for each in found)
    assert "tops3cret" not in repr(conf)


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]"])
def test_a_spark_on_this_machine_is_on_the_loopback(master: str) -> None:
    assert configuration(settings(), master=master)["spark.driver.host"] == "127.0.0.1"
