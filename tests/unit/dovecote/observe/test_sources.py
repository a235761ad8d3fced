"""A file names what there is, and takes the rest from the parts' own files."""

from pathlib import Path

import pytest

from dovecote.observe.sources import WatchSettings, read
from outbox.errors import BadSettings

_RELAY = """
dsn = "dbname=shop"
name = "shop"
batch_rows = 10
[kafka]
"bootstrap.servers" = "relay:1"
"""
_CONSUMER = """
topics = ["orders"]
group = "shipping"
handler = "shop:handle"
[kafka]
"bootstrap.servers" = "consumer:1"
"sasl.password" = { env = "PASSWORD" }
[retries]
dead_letter_topic = "orders.dead"
dead_on = ["shop.of.another:Machine"]
tiers = [{ topic = "orders.retry", wait = "1s" }]
[inbox]
dsn = { host = "db", password = { env = "PASSWORD" } }
retention = "168h"
"""
_SPARK = """
[kafka]
"bootstrap.servers" = "spark:1"
[source]
topics = ["clicks"]
[output]
topic = "sessions"
dead_letter_topic = "clicks.dead"
[spark]
query = "sessions"
checkpoint = "s3a://state/sessions"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {"relay.toml": _RELAY, "shipping.toml": _CONSUMER, "sessions.toml": _SPARK}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def written(folder: Path, text: str, **environ: str) -> WatchSettings:
    file = folder / "watch.toml"
    file.write_text(text)
    return read(WatchSettings, file, environ)


def test_the_rest_comes_from_the_files_of_the_parts(folder: Path) -> None:
    text = """
    [kafka]
    "bootstrap.servers" = "all:1"
    [sources.outbox.shop]
    config = "relay.toml"
    metrics = ["http://relay:9100/"]
    [sources.outbox.other]
    dsn = { env = "OTHER" }
    schema = "other"
    [sources.consumer.shipping]
    config = "shipping.toml"
    [sources.spark.sessions]
    config = "sessions.toml"
    [sources.push.main]
    url = "http://push:8080"
    token = { env = "PASSWORD" }
    """
    environ = {"PASSWORD": "hidden", "OTHER": "dbname=other", "DOVECOTE_RELAY_DSN": "dbname=no"}
    found = written(folder, text, **environ).sources

    shop, other = found.outbox["shop"], found.outbox["other"]
    assert (shop.dsn, shop.name, shop.kafka["bootstrap.servers"]) == (
        "dbname=shop",
        "shop",
        "relay:1",
    )
    assert shop.progress_topic == "dovecote.progress.shop"
    assert shop.metrics == ("http://relay:9100",)
    assert (other.dsn, other.name, other.kafka["bootstrap.servers"]) == (
        "dbname=other",
        "other",
        "all:1",
    )
    shipping = found.consumer["shipping"]
    assert (shipping.group, shipping.topics) == ("shipping", ("orders",))
    assert shipping.retries.dead_letter_topic == "orders.dead"
    assert [each.topic for each in shipping.retries.tiers] == ["orders.retry"]
    assert shipping.inbox is not None
    assert "host=db" in shipping.inbox.dsn
    sessions = found.spark["sessions"]
    assert sessions.source.topics == ("clicks",)
    assert sessions.spark.query == "sessions"
    assert sessions.output["dead_letter_topic"] == "clicks.dead"
    assert found.push["main"].token == environ["PASSWORD"]
    assert "hidden" not in repr(found)


def test_this_file_overrides_the_file_of_a_part(folder: Path) -> None:
    text = """
    [sources.outbox.shop]
    config = "relay.toml"
    dsn = "dbname=replica"
    kafka = { "bootstrap.servers" = "near:1" }
    """
    shop = written(folder, text).sources.outbox["shop"]
    assert (shop.dsn, shop.name) == ("dbname=replica", "shop")
    assert shop.kafka == {"bootstrap.servers": "near:1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sources.outbox.a]", "sources.outbox.a: `dsn` is missing"),
        (
            "[sources.consumer.a]\ngroup = 'g'",
            "sources.consumer.a: `group` or `topics` is missing",
        ),
        ("[sources.spark.a]", "sources.spark.a: `source.topics` is missing"),
        ("[sources.push.a]", "sources.push.a: `url` or `dsn` is missing"),
        ("[sources.push.a]\nurl = 'push:8080'", "write http://host:port"),
        ("[sources.push.a]\nurl = 'http://push'\ntoken = 'plain'", "is a secret"),
        ("[sources.outbox.a]\nconfig = 'gone.toml'", "cannot read"),
        ("[sources.outbox.a]\nnames = 'x'", "there is no such setting"),
        ("[sources.queue.a]", "there is no such setting"),
        ("[sources.consumer.a]\nconfig = 'relay.toml'", "`group` or `topics` is missing"),
    ],
)
def test_a_source_that_lacks_something_is_refused_by_name(
    folder: Path, text: str, said: str
) -> None:
    with pytest.raises(BadSettings, match=said.replace(".", r"\.")):
        written(folder, text)


def test_a_file_without_sources_is_allowed(folder: Path) -> None:
    assert written(folder, "").sources.outbox == {}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (_RELAY, "a relay"),
        (_CONSUMER, "a consumer"),
        (_SPARK, "a Spark job"),
        ('dsn = "dbname=push"\n[brokers.default]\n', "`dovecote push serve`"),
    ],
)
def test_the_file_of_one_part_is_said_to_be_that(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "part.toml"
    file.write_text(text)

    with pytest.raises(BadSettings) as refused:
        read(WatchSettings, file)

    assert str(refused.value).endswith(
        f"\nThis looks like the file of {part}; give the file that names the parts in [sources], "
        "see docs/watch.md."
    )


def test_a_watch_file_with_a_mistake_is_still_one(tmp_path: Path) -> None:
    file = tmp_path / "watch.toml"
    file.write_text('group = "g"\n[sources.consumer.a]\nconfig = "a.toml"')

    with pytest.raises(BadSettings, match=r"group: there is no such setting$"):
        read(WatchSettings, file)
