import re
from pathlib import Path

import pytest

from dovecote.devstack import Pair, Stack
from dovecote.devstack.errors import OtherVersion, StackError, UnknownVersion
from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.postgres.postgres import Postgres
from dovecote.devstack.versions import KAFKA, POSTGRES, Versions
from tests.support.documents import ROOT


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in (POSTGRES, KAFKA):
        monkeypatch.delenv(known.variable, raising=False)


@pytest.mark.parametrize(
    ("known", "asked", "means"),
    [
        (POSTGRES, "15", "15"),
        (POSTGRES, "15.19", "15"),
        (POSTGRES, "15.19.0", "15"),
        (KAFKA, "3.9", "3.9"),
        (KAFKA, KAFKA.revisions["3.9"], "3.9"),
        (KAFKA, None, None),
        (KAFKA, "", None),
    ],
)
def test_a_version_is_asked_for_in_short_or_in_full(
    known: Versions, asked: str | None, means: str | None
) -> None:
    assert known.choose(asked) == means


@pytest.mark.parametrize("asked", ["4", "3.70", "3.9.", "5.0", "latest", "3.7.1", "3", ".", "-1"])
def test_an_unknown_version_is_refused_with_those_that_are_known(asked: str) -> None:
    with pytest.raises(UnknownVersion) as refused:
        KAFKA.choose(asked)

    assert str(refused.value) == f"there is no Kafka {asked} here; there are 3.7, 3.9, 4.2, 4.4"
    assert refused.value.status == 2


def test_the_default_is_the_usual_one_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (Postgres(tmp_path / "a").version, Kafka(tmp_path / "a").version) == ("18", "4.2")
    monkeypatch.setenv("DOVECOTE_STACK_POSTGRES", "14")

    assert Postgres(tmp_path / "a").version == "14"
    assert Postgres(tmp_path / "a", version="16").version == "16"

    monkeypatch.setenv("DOVECOTE_STACK_POSTGRES", "13")
    with pytest.raises(UnknownVersion, match="there is no Postgres 13 here; there are 14, 15"):
        Postgres(tmp_path / "a")


def test_existing_data_keeps_its_version_and_another_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "postgres/data").mkdir(parents=True)
    (tmp_path / "postgres/data/PG_VERSION").write_text("15\n")
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka/version").write_text("3.9\n")
    monkeypatch.setenv("DOVECOTE_STACK_POSTGRES", "17")

    found = Stack(tmp_path)

    assert (found.postgres.version, found.kafka.version) == ("15", "3.9")
    assert Stack(tmp_path, postgres_version="15", kafka_version="3.9").kafka.version == "3.9"
    with pytest.raises(OtherVersion, match=r"the data in .* is of Postgres 15, not 16; give the"):
        Stack(tmp_path, postgres_version="16")
    with pytest.raises(OtherVersion, match=r"the data in .* is of Kafka 3.9, not 4.2; give the"):
        Kafka(tmp_path / "kafka", version="4.2")


def test_data_of_a_version_that_is_no_longer_here_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/PG_VERSION").write_text("13\n")

    with pytest.raises(OtherVersion, match=r"is of Postgres 13; there are 14, 15, 16, 17, 18"):
        Postgres(tmp_path)


def test_a_pair_is_refused_where_standbys_have_no_slots() -> None:
    with pytest.raises(StackError, match="a pair needs Postgres 17 or newer"):
        Pair(version="16")


def test_each_version_of_kafka_has_its_checksums_and_no_other() -> None:
    files = sorted((ROOT / "dovecote/devstack/kafka/checksums").iterdir())

    assert [file.stem for file in files] == [f"kafka-{each}" for each in KAFKA.revisions.values()]
    for file in [*files, ROOT / "dovecote/devstack/postgres/archives.sha256"]:
        for line in file.read_text().splitlines():
            assert re.fullmatch(r"[0-9a-f]{64}  \S+\.jar", line)
