"""A key with very many records: what is too much is a dead letter, and others go on."""

import json
from typing import Any

import pytest

from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import PairingSettings, SessionsSettings
from spark_jobs.operators.step import Failed, Input, Paired, Session


def _record(key: str, time: int, value: Any, offset: int, topic: str = "t") -> Input:
    return Input(key.encode(), time, value, topic, 0, offset, json.dumps(value).encode())


class Collecting:
    """An aggregate of one's own that only grows."""

    @staticmethod
    def initializer() -> list[Any]:
        return []

    @staticmethod
    def aggregator(_: object, value: Any, found: list[Any]) -> list[Any]:
        return [*found, value]

    @staticmethod
    def merger(_: object, one: list[Any], other: list[Any]) -> list[Any]:
        return one + other


@pytest.mark.parametrize("aggregate", ["list", f"{__name__}:Collecting"])
def test_a_session_takes_as_much_as_its_value_may_hold_and_still_closes(aggregate: str) -> None:
    operator = Sessions(
        SessionsSettings.model_validate(
            {"gap": "1s", "aggregate": aggregate, "max_value_bytes": 100}
        )
    )
    state, outputs = operator.start(), []
    for number in range(20):
        records = [_record(key, 100 + number, "x" * 7, number) for key in ("busy", str(number))]
        state, found, _ = operator.step(state, records, 0)
        state = decode(operator, encode(operator, state))
        outputs += found
    assert all(isinstance(each, Failed) for each in outputs)
    assert {each.record.key for each in outputs if isinstance(each, Failed)} == {b"busy"}
    assert "raise `max_value_bytes`" in str(outputs[0])
    state, closed, _ = operator.step(state, [], 10_000)
    (busy,) = [each for each in closed if isinstance(each, Session) and each.key == b"busy"]
    assert len(busy.value) == 20 - len(outputs)
    assert 80 < len(json.dumps(busy.value, separators=(",", ":"))) <= 100
    assert encode(operator, state)


@pytest.mark.parametrize("emit", ["on_close", "on_pair"])
@pytest.mark.parametrize("stream_time", ["per_key", "global"])
def test_a_key_keeps_no_more_events_than_it_may(emit: str, stream_time: str) -> None:
    operator = Pairing(
        PairingSettings.model_validate(
            {
                "within": "1s",
                "emit": emit,
                "stream_time": stream_time,
                "max_events": 10,
                "sides": {"a": {"topic": "a"}, "b": {"topic": "b"}},
            }
        )
    )
    records = [_record("busy", number, number, number, "a") for number in range(25)]
    other = [_record("other", 3, 1, 1, "a"), _record("other", 4, 2, 1, "b")]
    state, outputs, _ = operator.step(operator.start(), [*records, *other], 0)
    failed = [each for each in outputs if isinstance(each, Failed)]
    assert [each.record.offset for each in failed] == list(range(10, 25))
    assert "`max_events` is 10" in failed[0].reason
    state, closed, _ = operator.step(state, [], 10_000)
    keys = {each.key for each in [*outputs, *closed] if isinstance(each, Paired)}
    assert keys == {b"busy", b"other"}
    later = [_record("busy", 20_000, 1, 99, "a"), _record("busy", 20_001, 2, 99, "b")]
    assert not any(
        isinstance(each, Failed) for each in operator.step(state, later, 20_001).outputs
    )
