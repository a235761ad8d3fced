"""Ctrl-C while archives are fetched ends the program with 130, and without a traceback."""

from types import ModuleType
from typing import NoReturn

import pytest

from dovecote.devstack.kafka import jars as kafka_jars
from dovecote.devstack.postgres import programs
from dovecote.devstack.spark import jars as spark_jars


def interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "fetches", "arguments"),
    [
        (kafka_jars, "kafka_broker_jars", ([],)),
        (programs, "fetch", (["15"],)),
        (spark_jars, "s3_jars", ()),
    ],
    ids=["Kafka", "Postgres", "S3"],
)
def test_a_fetch_that_is_interrupted_ends_with_130(
    module: ModuleType,
    fetches: str,
    arguments: tuple[object, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, fetches, interrupted)
    assert module.main(*arguments) == 130
