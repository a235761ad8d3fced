"""A secret in a file is read again when it is needed, and otherwise stays the same."""

import pickle
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from dedup.settings.properties import client_properties
from dovecote.process.settings.loading import load
from outbox.errors import BadSettings
from outbox.postgres.session import conninfo, parsed
from outbox.secrets import asked, fresh, fresh_all
from relay.settings import RelaySettings


def settings(folder: Path, dsn: str, kafka: str = "") -> RelaySettings:
    file = folder / "relay.toml"
    file.write_text(
        f'dsn = {dsn}\n[kafka]\n"bootstrap.servers" = "localhost:1"\n{kafka}\n', encoding="utf-8"
    )
    return load(RelaySettings, file, prefix="NONE", environ={"HOST": "db.internal"})


def test_a_password_in_a_file_is_read_for_each_connection(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter1\n")
    found = settings(
        tmp_path, f'{{ host = {{ env = "HOST" }}, password = {{ file = "{secret}" }} }}'
    )
    assert conninfo_to_dict(found.dsn)["password"] == "hunter1"  # noqa: S105  # of this test
    secret.write_text("two")
    for shard in (found, found.of(found.own_shards()[0])):
        parts = conninfo_to_dict(conninfo(shard.dsn))
        assert (parts["host"], parts["password"]) == ("db.internal", "two")
    assert "hunter" not in repr(found)


def test_a_whole_connection_string_in_a_file_is_read_likewise(tmp_path: Path) -> None:
    secret = tmp_path / "dsn"
    secret.write_text("host=a password=one")
    found = settings(tmp_path, f'{{ file = "{secret}" }}')
    secret.write_text("host=b password=two")
    assert conninfo_to_dict(conninfo(found.dsn))["host"] == "b"


@pytest.mark.parametrize("worse", [None, "host=b password=two words", ""])
def test_what_cannot_be_read_for_now_leaves_the_last_one(
    tmp_path: Path, worse: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "dsn"
    secret.write_text("host=a password=first")
    found = settings(tmp_path, f'{{ file = "{secret}" }}')
    secret.write_text("host=b password=second")
    assert fresh(found.dsn) == "host=b password=second"
    if worse is None:
        secret.unlink()
    else:
        secret.write_text(worse)
    assert fresh(found.dsn) == "host=b password=second"
    assert "a secret is used as it was read before" in caplog.text
    assert "two words" not in caplog.text
    with pytest.raises(BadSettings, match=r"cannot read|not shown|is empty"):
        settings(tmp_path, f'{{ file = "{secret}" }}')


def test_secrets_of_kafka_are_read_for_each_client(tmp_path: Path) -> None:
    secret = tmp_path / "kafka"
    secret.write_text("one")
    found = settings(tmp_path, '"dbname=shop"', f'"sasl.password" = {{ file = "{secret}" }}')
    secret.write_text("two")
    assert found.producer_properties("any")["sasl.password"] == "two"
    consumer = client_properties(
        found.kafka, group="g", protocol="classic", assignor="range", instance=None
    )
    assert consumer["sasl.password"] == "two"
    assert fresh_all(found.kafka)["bootstrap.servers"] == "localhost:1"


def test_a_secret_travels_as_the_text(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("one")
    found = settings(tmp_path, '"dbname=shop"', f'"sasl.password" = {{ file = "{secret}" }}')
    secret.unlink()
    assert pickle.loads(pickle.dumps(found.kafka["sasl.password"])) == "one"  # noqa: S301  # our own


@pytest.mark.parametrize(
    "worse",
    [
        "host=b password=two S3CRET",
        "postgresql://u:S3CRET%zz@b/d",
        "postgresql://u:a@S3CRET@b/d",
        "host=b password=S3CRET\udcfc",
        "host=b password=S3CRET\0",
        " ",
    ],
)
def test_a_text_of_a_function_that_cannot_be_right_leaves_the_last_one(
    worse: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = ["host=a password=one"]
    text = asked(lambda: given[0], "dsn", parsed)
    given[0] = worse
    assert fresh(text) == "host=a password=one"
    assert "a secret is used as it was read before: dsn: " in caplog.text
    assert "S3CRET" not in caplog.text
    with pytest.raises(ValueError, match="dsn: ") as refused:
        asked(lambda: worse, "dsn", parsed)
    assert "S3CRET" not in str(refused.value)
