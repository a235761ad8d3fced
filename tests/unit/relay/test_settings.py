"""Settings of a relay: consistent defaults, and nothing that would break a guarantee."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovecote.process.settings.loading import load
from outbox import BadSettings
from relay.kafka.properties import FIXED, check_properties, producer_properties
from relay.rules.sharding import divided
from relay.settings import PREFIX, RelaySettings


def relay_settings(
    tmp_path: Path, toml: str = "", kafka: str = "", **environ: str
) -> RelaySettings:
    file = tmp_path / "relay.toml"
    file.write_text(
        f'dsn = "host=h"\n{toml}\n[kafka]\n"bootstrap.servers" = "b:9092"\n{kafka}\n',
        encoding="utf-8",
    )
    return load(RelaySettings, file, prefix=PREFIX, environ=environ)


def test_little_needs_to_be_said(tmp_path: Path) -> None:
    found = relay_settings(tmp_path)
    assert (found.schema_name, found.name, found.mode) == ("outbox", "outbox", "exactly_once")
    assert found.progress_topic == "dovecote.progress.outbox"
    assert found.http.port is None


def test_a_name_follows_the_schema_and_progress_the_name(tmp_path: Path) -> None:
    assert relay_settings(tmp_path, 'schema = "shop"').name == "shop"
    found = relay_settings(tmp_path, 'schema = "shop"\nname = "tills"')
    assert (found.name, found.progress_topic) == ("tills", "dovecote.progress.tills")
    found = relay_settings(tmp_path, DOVECOTE_RELAY_SCHEMA="env")
    assert (found.schema_name, found.progress_topic) == ("env", "dovecote.progress.env")


def test_every_field_is_a_variable_too(tmp_path: Path) -> None:
    found = relay_settings(
        tmp_path,
        DOVECOTE_RELAY_MODE="at_least_once",
        DOVECOTE_RELAY_BATCH_ROWS="7",
        DOVECOTE_RELAY_LEASE="3s",
        DOVECOTE_RELAY_HTTP__PORT="0",
        DOVECOTE_RELAY_KAFKA__CLIENT_ID="me",
    )
    assert (found.mode, found.batch_rows, found.http.port) == ("at_least_once", 7, 0)
    assert found.lease == timedelta(seconds=3)
    assert found.kafka["client.id"] == "me"


@pytest.mark.parametrize(
    "pattern", ["orders(", "x y", "", "a/b", "größe", "a\\n", "orders[", "a]", "a[]", "b!"]
)
def test_a_pattern_that_no_topic_can_match_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(BadSettings, match=r"topics: '.*' matches no topic: names have letters"):
        relay_settings(tmp_path, f'topics = ["orders", "{pattern}"]')


def test_topics_are_names_and_patterns(tmp_path: Path) -> None:
    patterns = ("orders", "Shop_1.a-b", "orders.*", "a?", "[a-c]*", "[!_]*")
    listed = ", ".join(f'"{each}"' for each in patterns)
    assert relay_settings(tmp_path, f"topics = [{listed}]").topics == patterns


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ('mode = "twice"', "mode: must be 'exactly_once' or 'at_least_once'"),
        ('name = "a.shard-2"', "name: 'a.shard-2' is what a shard of another outbox is called"),
        ("shards = 2\nshard = 2", "shard 2 is none of shards = 2: they count from 0"),
        ('shards = 2\nprogress_topic = "p"', "must begin with 'dovecote.progress.'"),
        ("batch_rows = 0", "batch_rows: must be greater than or equal to 1"),
        ('poll_min = "0s"', "poll_min: must be longer than 0"),
        ('poll_min = "1s"\npoll_max = "10ms"', "is longer than poll_max"),
        ('lease = "999ms"', "lease: must be at least 1s"),
        ('lease = "720h"', "lease: must be at most 24h"),
        ('standby_poll = "720h"', "standby_poll: must be at most 24h"),
        ('poll_max = "720h"', "poll_max: must be at most 24h"),
        ('transaction_timeout = "999ms"', "transaction_timeout: must be from 1s to 596h"),
        ('transaction_timeout = "597h"', "transaction_timeout: must be from 1s to 596h"),
        ('name = "two words"', "progress_topic: 'dovecote.progress.two words' is not a Kafka"),
        ('progress_topic = "a/b"', "progress_topic: 'a/b' is not a Kafka topic name"),
        ("[http]\nport = 70000", r"http\.port: must be less than"),
    ],
)
def test_what_cannot_work_is_refused_by_its_path(tmp_path: Path, toml: str, says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        relay_settings(tmp_path, toml)


def test_a_broker_must_be_named(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text('dsn = "host=h"\n[kafka]\n', encoding="utf-8")
    with pytest.raises(BadSettings, match=r'kafka: "bootstrap\.servers" is missing'):
        load(RelaySettings, file, prefix=PREFIX, environ={})


@pytest.mark.parametrize("name", sorted(FIXED))
def test_what_a_guarantee_rests_on_cannot_be_set(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSettings, match=f"kafka: {name} cannot be set: a guarantee rests on it"):
        relay_settings(tmp_path, kafka=f'"{name}" = "1"')
    with pytest.raises(BadSettings, match="a guarantee rests on it"):
        relay_settings(
            tmp_path, **{f"DOVECOTE_RELAY_KAFKA__{name.replace('.', '_').upper()}": "1"}
        )


def properties(mode: Any = "exactly_once", **given: str) -> dict[str, str | bool]:
    return producer_properties(
        {name.replace("_", "."): value for name, value in given.items()},
        mode=mode,
        transactional_id="shop",
        transaction_timeout=60,
    )


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_librdkafka_takes_what_we_ask_of_it(mode: str) -> None:
    check_properties(properties(mode))


def test_defaults_can_be_set_and_guarantees_hold() -> None:
    found = properties(linger_ms="1", acks="0", partitioner="consistent")
    assert (found["linger.ms"], found["acks"], found["partitioner"]) == (
        "1", "all", "murmur2_random",
    )  # fmt: skip
    assert found["transactional.id"] == "shop"


def test_without_transactions_nothing_overtakes_a_record_that_failed() -> None:
    found = properties("at_least_once", message_timeout_ms="5")
    assert "transactional.id" not in found
    assert found["enable.idempotence"] == "true"
    assert found["enable.gapless.guarantee"] == "true"
    assert found["message.timeout.ms"] == "0"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lingre_ms": "1"}, r"lingre\.ms"),
        ({"linger_ms": "soon"}, r"(linger|queue\.buffering\.max)\.ms"),
        ({"compression_type": "rar"}, r"compression\.(type|codec)"),
    ],
)
def test_a_property_that_librdkafka_refuses_is_named(given: dict[str, str], says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        check_properties(properties(**given))


def test_each_shard_has_names_of_its_own_in_kafka(tmp_path: Path) -> None:
    found = relay_settings(tmp_path, 'name = "shop"\nshards = 2')
    own = [found.of(shard) for shard in found.own_shards()]
    assert [each.name for each in own] == ["shop.shard-0", "shop.shard-1"]
    assert [each.progress_topic for each in own] == [
        "dovecote.progress.shop.shard-0",
        "dovecote.progress.shop.shard-1",
    ]
    ids = [own[1].producer_properties("7e1d", turn)["transactional.id"] for turn in (0, 1)]
    first = "dovecote.relay.shop.shard-1.7e1d"
    assert ids == [first, f"{first}.second-turn"]


def test_no_two_outboxes_share_a_transactional_id(tmp_path: Path) -> None:
    names = ("shop", "shop.2", "shop-1", "shop.7e1d", "shop.second-turn")
    found = [
        relay_settings(tmp_path, f'name = "{name}"').transactional_ids(own)
        for name in names
        for own in ("7e1d", "93c0")
    ]
    assert len({each for ids in found for each in ids}) == 4 * len(names)


def test_no_outbox_is_called_as_a_shard_of_another(tmp_path: Path) -> None:
    settings = relay_settings(tmp_path, 'name = "shop-1"')
    assert settings.name not in {each.name for each in divided("shop", 3)}
    with pytest.raises(BadSettings, match="is what a shard of another outbox is called"):
        relay_settings(tmp_path, 'name = "shop.shard-1"')


def test_an_outbox_in_one_piece_is_what_its_settings_say(tmp_path: Path) -> None:
    found = relay_settings(tmp_path, 'name = "shop"')
    (shard,) = found.own_shards()
    assert found.of(shard) is found


def test_a_relay_can_be_kept_to_one_shard(tmp_path: Path) -> None:
    found = relay_settings(tmp_path, "shards = 3\nshard = 2")
    assert [shard.number for shard in found.own_shards()] == [2]
