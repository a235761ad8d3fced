"""Settings of `dovecote spark dedup`."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dedup.settings.policy import ExactSettings, FirstMatchSettings
from dovecote.process.settings.loading import load
from outbox.errors import BadSettings
from spark_jobs.query.conf import FORCED, REFUSED, refusal
from spark_jobs.query.configuring import configuration
from spark_jobs.query.settings import PREFIX, DedupSettings, SparkSettings
from spark_jobs.stateful.settings import recirculation

TOML = """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
"sasl.password" = { env = "PASSWORD" }

[source]
topics = ["orders"]

[source.options]
"client.rack" = "a"

[operator]
type = "first_match"
filter = "value.amount > 0"

[output]
topic = "orders.first"
retry_topic = "orders.retry"
dead_letter_topic = "orders.dead"

[retry]
base = "500ms"

[spark]
query = "orders"
checkpoint = "/var/lib/dovecote/orders"
"""

_TOO_LOW = '{"o": {"0": -3}}'
_TOGETHER = '\n[recirculation]\nrun = "together"'


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., DedupSettings]:
    def load_text(text: str = TOML, **environ: str) -> DedupSettings:
        file = tmp_path / "job.toml"
        file.write_text(text)
        return load(DedupSettings, file, prefix=PREFIX, environ={"PASSWORD": "pw", **environ})

    return load_text


def test_a_file_says_it_all(loaded: Callable[..., DedupSettings]) -> None:
    settings = loaded()

    assert settings.operator == FirstMatchSettings(filter="value.amount > 0")
    assert settings.kafka["sasl.password"] == "pw"
    assert settings.source.options == {"client.rack": "a"}
    assert settings.backoff().base == timedelta(milliseconds=500)
    assert settings.marker_topic() == "dovecote.markers.orders"
    assert settings.transactional_id() == "dovecote.orders"
    assert settings.spark.pause() == timedelta(seconds=1)
    assert "pw" not in repr(settings)


def test_the_environment_comes_over_the_file(loaded: Callable[..., DedupSettings]) -> None:
    settings = loaded(
        DOVECOTE_SPARK_SPARK__CHECKPOINT="/elsewhere",
        DOVECOTE_SPARK_SPARK__SHUFFLE_PARTITIONS="8",
        DOVECOTE_SPARK_SOURCE__TOPICS='["a", "b"]',
        DOVECOTE_SPARK_KAFKA__BOOTSTRAP_SERVERS="k:1",
    )

    assert settings.spark.checkpoint == "/elsewhere"
    assert settings.spark.shuffle_partitions == 8
    assert settings.source.topics == ("a", "b")
    assert settings.kafka["bootstrap.servers"] == "k:1"


def test_the_operators_type_decides_its_fields(loaded: Callable[..., DedupSettings]) -> None:
    text = TOML.replace('type = "first_match"', 'type = "exact"\nby = "value"')

    assert loaded(text).operator == ExactSettings(filter="value.amount > 0", by="value")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('topics = ["orders"]', 'topics = ["orders"]\ntopic = 1', "source.topic"),
        ('type = "first_match"', 'type = "first"', "operator"),
        ("[operator]", "[operator]\nwindow = 1", "operator.first_match.window"),
        ('topics = ["orders"]', "topics = []", "source.topics"),
        ('topics = ["orders"]', 'topics = ["a b"]', "source.topics"),
        ('topics = ["orders"]', 'topics = ["orders.[ab"]', "'orders.[ab' matches no topic"),
        ('topics = ["orders"]', 'topics = ["orders", "!old"]', "no other entry is a pattern"),
        ('topics = ["orders"]', 'topics = ["o*", "!orders.[f"]', "'orders.[f' matches no topic"),
        ('topics = ["orders"]', 'topics = ["orders.first"]', "read and written"),
        ('topics = ["orders"]', 'topics = ["orders.f*"]', 'Add "!orders.first"'),
        ('topics = ["orders"]', 'topics = ["orders.d*"]', 'Add "!orders.dead"'),
        ('topics = ["orders"]', 'topics = ["orders.r*"]', 'Add "!orders.retry"'),
        ('topics = ["orders"]', 'topics = ["x.*"]' + _TOGETHER, "needs a plain name"),
        ('topics = ["orders"]', 'topics = ["x.*", "orders.retry"]' + _TOGETHER, "twice"),
        ('topics = ["orders"]', 'topics = ["orders.dead"]', "read and written"),
        ('"orders.retry"', '"orders.first"', "three different"),
        ("[retry]", '[output.by_type]\nPaid = "orders"\n[retry]', "read and written"),
        ("[retry]", '[output.by_type]\nPaid = "orders.dead"\n[retry]', "three different"),
        ('"client.rack" = "a"', '"isolation.level" = "x"', "exactly once"),
        ('"client.rack" = "a"', '"auto.offset.reset" = "latest"', "exactly once"),
        ('"client.rack" = "a"', '"group.id" = "mine"', "exactly once"),
        ("[kafka]", '[kafka]\n"transactional.id" = "x"', "transactional.id"),
        ('"bootstrap.servers" = "127.0.0.1:9092"', "", "bootstrap.servers"),
        ("[kafka]", 'transaction_timeout = "999ms"\n[kafka]', "from 1s to 596h"),
        ("[kafka]", 'transaction_timeout = "597h"\n[kafka]', "from 1s to 596h"),
        ('base = "500ms"', 'base = "1h"', "ceiling"),
        ('base = "500ms"', 'base = "soon"', "retry.base"),
        ('query = "orders"', 'query = "a/b"', "spark.query"),
        ("[spark]", '[spark]\ntrigger = "often"', "spark.trigger"),
        ("[spark]", '[spark]\nconf = {"spark.speculation" = "true"}', "spark.speculation"),
        ("[spark]", '[spark]\nconf = {"spark.sql.adaptive.enabled" = "TRUE"}', "adaptive"),
        ("[operator]", '[operator]\nkey = ["a"]', "operator"),
        ("[operator]", '[operator]\nremember = "long"', "remember"),
        ("[retry]", '[recirculation]\nrun = "sometimes"\n[retry]', "recirculation.run"),
        ('topics = ["orders"]', 'topics = ["orders", "orders.retry"]' + _TOGETHER, "twice"),
        ("[spark]", f'{_TOGETHER}\n[spark]\ntrigger = "available_now"', "spark.trigger"),
        ('topics = ["orders"]', 'topics = ["o"]\nstarting_offsets = "5"x', "not TOML"),
        ('topics = ["orders"]', 'topics = ["o"]\nstarting_offsets = "first"', "starting_offsets"),
        ('topics = ["orders"]', "topics = ['o']\nstarting_offsets = '{\"o\": 5}'", "JSON"),
        (
            'topics = ["orders"]',
            "topics = ['o']\nstarting_offsets = '{\"o\": {\"0\": -3}}'",
            "JSON",
        ),
        ('topics = ["orders"]', 'topics = ["o"]\nexpired = "ignore"', "source.expired"),
        ("[spark]", '[spark]\ngrouping = "key"', "spark.grouping"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(
    loaded: Callable[..., DedupSettings], old: str, new: str, named: str
) -> None:
    assert old in TOML

    with pytest.raises(BadSettings) as refused:
        loaded(TOML.replace(old, new))

    assert named in str(refused.value)


@pytest.mark.parametrize(
    "offsets",
    ['{"0": "3"}', '{"0": 3.0}', '{"0": true}', f'{{"0": {10**23}}}', '{"00": 3}', '{" 0": 3}'],
)
def test_an_offset_that_could_be_taken_for_another_is_refused(
    loaded: Callable[..., DedupSettings], offsets: str
) -> None:
    wanted = f"topics = ['o']\nstarting_offsets = '{{\"o\": {offsets}}}'"
    with pytest.raises(BadSettings, match=r"source\.starting_offsets: must be .* JSON of offsets"):
        loaded(TOML.replace('topics = ["orders"]', wanted))


@pytest.mark.parametrize("place", ["o/0/" + "9" * 5_000, "o/0/٤٢", "o/00/1", "o/99999999999/1"])
def test_a_place_to_skip_that_no_record_has_is_refused(
    loaded: Callable[..., DedupSettings], place: str
) -> None:
    with pytest.raises(BadSettings, match=r"source\.skip"):
        loaded(TOML.replace('topics = ["orders"]', f'topics = ["o"]\nskip = ["{place}"]'))


@pytest.mark.parametrize(
    "topics",
    [
        ["orders", "returns.*"],
        ["*", "!orders.first", "!orders.dead", "!orders.retry"],
        ["*", "!orders.[!x]*"],
        ["*", "!orders.*", "orders.retry"],  # read at once, because it is named
    ],
)
def test_patterns_are_read_and_kept_as_they_are_written(
    loaded: Callable[..., DedupSettings], topics: list[str]
) -> None:
    settings = loaded(TOML.replace('["orders"]', str(topics)))

    assert settings.source.topics == tuple(topics)
    assert settings.pins()["source.topics"] == sorted(topics)


def test_the_query_that_puts_records_back_has_the_secrets_of_the_job(
    loaded: Callable[..., DedupSettings],
) -> None:
    options = '"client.rack" = "a"\n"sasl.password" = { env = "PASSWORD" }'
    settings = loaded(TOML.replace('"client.rack" = "a"', options) + _TOGETHER)

    second = recirculation(settings)

    assert second.kafka == settings.kafka
    assert second.kafka["sasl.password"] == "pw"
    assert second.source.options == settings.source.options


def test_the_query_that_puts_records_back_goes_on_without_deleted_ones_as_the_job_does(
    loaded: Callable[..., DedupSettings],
) -> None:
    skipping = TOML.replace("[source]", '[source]\nexpired = "skip"') + _TOGETHER

    assert recirculation(loaded(TOML + _TOGETHER)).source.expired == "refuse"
    assert recirculation(loaded(skipping)).source.expired == "skip"


def test_records_go_back_by_the_same_patterns_and_by_default_to_the_first_plain_topic(
    loaded: Callable[..., DedupSettings],
) -> None:
    entries = ["o*", "!orders.*", "returns", "orders"]
    settings = loaded(TOML.replace('["orders"]', str(entries)) + _TOGETHER)

    second = recirculation(settings)

    assert second.topics().output == "returns"
    assert second.topics().back_to == {*entries}
    assert second.topics_written() == ("returns", "orders.dead", "orders")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("spark.sql.streaming.noDataMicroBatches.enabled", "false", "must be true: without such"),
        ("spark.sql.streaming.noDataProgressEventInterval", "600000", "must be 10000"),
        ("spark.python.worker.killOnIdleTimeout", "true", "must be false: it would end a slow"),
        ("spark.executor.pyspark.memory", "1g", r"is 1g: it limits .*memoryOverhead"),
        ("spark.sql.planner.pythonExecution.memory", "512", "is 512: it limits the addresses"),
    ],
)
def test_what_no_job_can_run_with_is_refused_with_its_reason(
    loaded: Callable[..., Any], name: str, value: str, reason: str
) -> None:
    text = TOML.replace("[spark]", f'[spark]\nconf = {{"{name}" = "{value}"}}')
    with pytest.raises(BadSettings, match=reason):
        loaded(text)


def test_what_a_cluster_says_is_overridden_or_refused() -> None:
    settings = SparkSettings(query="q", checkpoint="c")
    made = configuration(settings, master=None)
    assert {name: made[name] for name in FORCED} == {
        name: value for name, (value, _) in FORCED.items()
    }
    assert refusal({**made, "spark.speculation": "false"}) is None
    for name in REFUSED:
        assert refusal({**made, name: "TRUE"}) is not None


def test_speculation_may_be_said_to_be_off(loaded: Callable[..., Any]) -> None:
    text = TOML.replace("[spark]", '[spark]\nconf = {"spark.speculation" = "false"}')

    assert loaded(text).spark.conf == {"spark.speculation": "false"}


@pytest.mark.parametrize("name", ["relay", "relay.shop", "push.x", "dead.letters"])
def test_a_query_takes_no_name_whose_rights_are_those_of_other_parts(name: str) -> None:
    with pytest.raises(ValueError, match="would be a right on all that other parts"):
        SparkSettings(query=name, checkpoint="/c")
    assert SparkSettings(query=f"my-{name}", checkpoint="/c").query == f"my-{name}"
