import re
from pathlib import Path

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.versions import KAFKA


def properties(kafka: Kafka) -> dict[str, str]:
    lines = kafka._properties().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_one_broker_replicates_nothing_and_makes_no_topic_unasked(tmp_path: Path) -> None:
    told = properties(Kafka(tmp_path))

    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert told[f"{topic}.replication.factor"] == "1"
    assert told["transaction.state.log.min.isr"] == "1"
    assert told["auto.create.topics.enable"] == "false"


def test_the_broker_listens_on_the_loopback_only(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path)

    listeners = properties(kafka)["listeners"].split(",")

    assert listeners[0] == f"PLAINTEXT://{kafka.bootstrap}"
    assert all("://127.0.0.1:" in listener for listener in listeners)


def test_settings_of_the_caller_win(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, settings={"group.initial.rebalance.delay.ms": "7", "new": "a\\b"})

    assert properties(kafka)["group.initial.rebalance.delay.ms"] == "7"
    assert properties(kafka)["new"] == "a\\\\b"


def test_the_data_is_in_its_folder_whatever_that_is_called(tmp_path: Path) -> None:
    assert properties(Kafka(tmp_path / "a,b"))["log.dirs"] == "data"


def test_java_reads_a_setting_of_any_characters_as_it_is(tmp_path: Path) -> None:
    path = 'Jörg 1" 🕊/store.p12'

    told = properties(Kafka(tmp_path, settings={"new": path}))["new"]

    # Java reads the file as Latin-1, with `\uXXXX` for all else.
    assert told.isascii()
    units = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), told)
    read = units.encode("utf-16", "surrogatepass").decode("utf-16")
    assert read == path


def test_the_address_is_the_same_for_every_broker_on_the_same_data(tmp_path: Path) -> None:
    assert Kafka(tmp_path).bootstrap == Kafka(tmp_path).bootstrap


def test_a_version_that_a_full_disk_kept_from_being_noted_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "version").touch()

    assert Kafka(tmp_path).version == KAFKA.default
