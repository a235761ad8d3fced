"""A checkpoint that cannot be used, in an error that tells what to do."""

import pytest

from outbox.errors import BadSettings
from spark_jobs.checkpoint.files import LocalFiles, unusable
from spark_jobs.errors import CheckpointUnavailable

PLACE = "s3a://nowhere/orders"
NO_CLASS = (
    "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
)
NO_BUCKET = (
    "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://nowhere/orders': getFileStatus on "
    "s3a://nowhere/orders: NoSuchBucket: The specified bucket does not exist"
)
DENIED = "java.nio.file.AccessDeniedException: s3a://nowhere/orders: getFileStatus: Forbidden 403"
AWAY = "java.net.ConnectException: Connection refused"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([f"java.lang.RuntimeException: {NO_CLASS}", NO_CLASS], "the jars of this file system"),
        (
            ['org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "x"'],
            "the jars of this file system",
        ),
        (
            [NO_BUCKET, "software.amazon.awssdk.services.s3.model.NoSuchBucketException: no"],
            "there is no such bucket",
        ),
        ([DENIED], "these credentials may not use it"),
    ],
)
def test_a_wrong_setting_is_a_bad_setting(said: list[str], reason: str) -> None:
    found = unusable(PLACE, said)

    assert isinstance(found, BadSettings)
    assert str(found).startswith(f"spark.checkpoint {PLACE} cannot be used: {reason}")
    assert "\n" not in str(found)


# A file of ours that was being written, with digits at random.
NO_RENAME = (
    "java.io.IOException: /data/.dovecote-runs.json.d4c113ad37bb46ce403030b2.tmp is no file"
)


@pytest.mark.parametrize("last", [AWAY, NO_RENAME])
def test_an_outage_is_none(last: str) -> None:
    found = unusable(PLACE, ["java.io.IOException: getFileStatus failed", last])

    assert isinstance(found, CheckpointUnavailable)
    assert f"does not answer: {last}" in str(found)


def test_what_is_not_there_is_nothing(tmp_path: object) -> None:
    files = LocalFiles(tmp_path)  # type: ignore[arg-type]  # a Path

    assert (files.read("metadata"), files.names("offsets"), files.names("x/y")) == (None, [], [])
