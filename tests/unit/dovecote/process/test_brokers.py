"""Brokers that are left empty are refused by the settings of each program."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from dedup.settings.consumer import ConsumeSettings
from dedup.settings.dead import DeadSettings
from dovecote.process.settings.loading import load
from dovecote.push.settings import PushSettings
from outbox.errors import BadSettings
from outbox.producer.direct import properties
from relay.settings import RelaySettings
from spark_jobs.query.settings import DedupSettings
from spark_jobs.stateful.settings import AggregationJob, PairingJob, SessionsJob

# The client takes it for brokers that are away, and the process waits for ever.
_SAYS = re.escape('"bootstrap.servers" is empty: give the brokers')
_MODELS = (
    *(ConsumeSettings, DeadSettings, RelaySettings, PushSettings),
    *(DedupSettings, PairingJob, SessionsJob, AggregationJob),
)


@pytest.mark.parametrize("model", _MODELS)
@pytest.mark.parametrize("brokers", ["", "  ", ",", " ,\t"])
def test_empty_brokers_are_refused(model: type[BaseModel], brokers: str, tmp_path: Path) -> None:
    table = "brokers.default" if model is PushSettings else "kafka"
    file, environ = tmp_path / "settings.toml", {"BOOTSTRAP": brokers}
    file.write_text(f'[{table}]\n"bootstrap.servers" = {{ env = "BOOTSTRAP" }}\n')
    with pytest.raises(BadSettings, match=_SAYS):
        load(model, file, prefix="DOVECOTE_TEST", environ=environ)


def test_a_file_or_another_name_of_the_property_may_not_be_empty_either(tmp_path: Path) -> None:
    file, brokers = tmp_path / "settings.toml", tmp_path / "brokers"
    brokers.write_text("\n")
    file.write_text(f'[kafka]\n"bootstrap.servers" = {{ file = "{brokers}" }}\n')
    with pytest.raises(BadSettings, match=_SAYS):
        load(ConsumeSettings, file, prefix="DOVECOTE_TEST", environ={})
    file.write_text('[kafka]\n"metadata.broker.list" = ""\n')
    with pytest.raises(BadSettings, match=r'"metadata\.broker\.list" is empty'):
        load(ConsumeSettings, file, prefix="DOVECOTE_TEST", environ={})


def test_a_producer_refuses_them_as_well() -> None:
    with pytest.raises(BadSettings, match=r"bootstrap\.servers is missing"):
        properties({"bootstrap.servers": " , "}, events=1, size=1)
