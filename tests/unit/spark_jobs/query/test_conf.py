"""The table `[spark.conf]`, whose secrets are pointers as everywhere."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dovecote.process.settings.loading import load
from outbox.errors import BadSettings
from outbox.secrets import fresh
from spark_jobs.query.conf import is_secret
from spark_jobs.query.settings import PREFIX, DedupSettings

TOML = """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
[source]
topics = ["orders"]
[operator]
type = "exact"
[output]
topic = "o"
retry_topic = "r"
dead_letter_topic = "d"
[spark]
query = "q"
checkpoint = "s3a://bucket/q"
[spark.conf]
"""
KEY = "spark.hadoop.fs.s3a.secret.key"


def conf(tmp_path: Path, lines: str, **environ: str) -> Mapping[str, str]:
    file = tmp_path / "job.toml"
    file.write_text(f"{TOML}{lines}\n")
    return load(DedupSettings, file, prefix=PREFIX, environ=environ).spark.conf


def test_a_secret_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of a file\n")

    assert (
        conf(tmp_path, f'"{KEY}" = {{ env = "S3" }}', S3="of a variable")[KEY] == "of a variable"
    )
    read = conf(tmp_path, f'"{KEY}" = {{ file = "{tmp_path}/key" }}')[KEY]
    assert fresh(read) == "of a file"
    assert type(fresh(read)) is str


def test_a_pointer_is_a_secret_whatever_the_property_is_called(tmp_path: Path) -> None:
    found = conf(tmp_path, '"spark.hadoop.x" = { env = "X" }\n"spark.y" = "plain"', X="abc")

    assert is_secret("spark.hadoop.x", found["spark.hadoop.x"])
    assert not is_secret("spark.y", found["spark.y"])


@pytest.mark.parametrize(
    "name",
    [
        KEY,
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.shop.dfs.core.windows.net",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
    ],
)
def test_a_secret_in_the_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSettings, match="is a secret: write") as caught:
        conf(tmp_path, f'"{name}" = "tops3cret"')
    assert "tops3cret" not in str(caught.value)


def test_a_name_of_no_secret_is_taken_as_it_is(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        '"spark.hadoop.fs.s3a.access.key" = "AKIA"\n"spark.executor.cores" = 2\n'
        '"spark.eventLog.enabled" = true',
    )

    assert found == {
        "spark.hadoop.fs.s3a.access.key": "AKIA",
        "spark.executor.cores": "2",
        "spark.eventLog.enabled": "true",
    }


def test_the_table_may_come_from_a_variable(tmp_path: Path) -> None:
    environ = {
        "DOVECOTE_SPARK_SPARK__CONF__SPARK_HADOOP_FS_S3A_SECRET_KEY": "one",
    }
    assert conf(tmp_path, "", **environ)[KEY] == "one"
    whole = tmp_path / "whole.toml"
    whole.write_text(TOML.replace("[spark.conf]", ""))
    environ = {"DOVECOTE_SPARK_SPARK__CONF": '{"spark.executor.cores": "3"}'}
    found = load(DedupSettings, whole, prefix=PREFIX, environ=environ)
    assert found.spark.conf == {"spark.executor.cores": "3"}


def test_settings_that_are_made_again_keep_their_secrets(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(f'{TOML}"{KEY}" = {{ env = "S3" }}\n')
    found = load(DedupSettings, tmp_path / "job.toml", prefix=PREFIX, environ={"S3": "abc"})

    again = DedupSettings.model_validate(found.model_dump())

    assert is_secret(KEY, again.spark.conf[KEY])
    assert "abc" not in repr(again)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (f'"{KEY}" = {{ env = "NOWHERE" }}', "NOWHERE is not set"),
        (f'"{KEY}" = {{ file = "/nowhere" }}', "cannot read /nowhere"),
        ("spark.executor.cores = 2", "names with dots need quotes"),
        ('"spark.x" = ["a"]', "must be a string, a number or a boolean"),
    ],
)
def test_what_is_wrong_in_the_table_is_one_error(tmp_path: Path, lines: str, reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        conf(tmp_path, lines)
