"""The settings of one process of several that share a group."""

import pytest
from pydantic import ValidationError

from dedup.settings.consumer import ConsumeSettings

SETTINGS = {
    "topics": ["orders"],
    "group": "shipping",
    "kafka": {"bootstrap.servers": "kafka:9092"},
    "processes": 4,
}


def test_each_process_is_a_static_member_of_its_own_and_answers_its_parent_alone() -> None:
    http = {"host": "0.0.0.0", "port": 9464, "hosts": ["shop.internal"]}  # noqa: S104  # a container's
    given = ConsumeSettings.model_validate({**SETTINGS, "instance": "pod-1", "http": http})
    one = given.of_process(2)
    assert one.instance == "pod-1-2"
    assert (one.http.host, one.http.port, one.http.hosts) == ("127.0.0.1", 0, ())
    assert one.client_properties()["group.instance.id"] == "pod-1-2"


def test_without_a_port_or_an_instance_a_process_has_none() -> None:
    one = ConsumeSettings.model_validate(SETTINGS).of_process(0)
    assert one.http.port is None
    assert one.instance is None


def test_partitions_that_no_member_shares_are_for_one_process() -> None:
    with pytest.raises(ValidationError, match="set one of the two"):
        ConsumeSettings.model_validate({**SETTINGS, "partitions": {"orders": [0]}})


@pytest.mark.parametrize("count", [0, -1, 257])
def test_there_is_at_least_one_process_and_no_thousands(count: int) -> None:
    with pytest.raises(ValidationError, match="processes"):
        ConsumeSettings.model_validate({**SETTINGS, "processes": count})
