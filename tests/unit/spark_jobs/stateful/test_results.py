"""Results of sessions that are written together are what each alone would be."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.operators.step import Session
from spark_jobs.stateful.results import of_sessions

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text())
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.one_of(
    PLAIN,
    FLOATS,
    st.lists(st.one_of(PLAIN, FLOATS), max_size=3),
    st.dictionaries(st.text(max_size=3), FLOATS, max_size=2),
)
SESSIONS = st.builds(
    Session,
    st.sampled_from(["result", "update", "retract"]),
    st.binary(max_size=4),
    st.integers(-(2**40), 2**40),
    st.integers(-(2**40), 2**40),
    VALUES,
    st.integers(1, 9),
)
SETTINGS = SessionsSettings.model_validate({"gap": "1s"})


@given(st.lists(SESSIONS, min_size=1, max_size=4))
def test_each_value_has_the_bytes_of_the_usual_encoder(sessions: list[Session]) -> None:
    found = list(of_sessions(sessions, SETTINGS, "out", b"q/"))
    assert [each[2] for each in found] == [
        to_json({**each._asdict(), "key": each.key.decode(errors="replace")}) for each in sessions
    ]
    assert [each[4] for each in found] == [max(each.end, 0) for each in sessions]
    assert [next(iter(of_sessions([each], SETTINGS, "out", b"q/"))) for each in sessions] == found


@pytest.mark.parametrize("fields", [b'["a",1.5e30]', b'["a","b"]'])
def test_a_key_of_fields_is_shown_as_its_list(fields: bytes) -> None:
    settings: Any = SETTINGS.model_copy(update={"key": ("a", "b")})
    session = Session("result", fields, 1, 2, [1], 1)
    ((_, key, value, *_),) = of_sessions([session], settings, "out", b"q/")
    assert (key, json.loads(value)["key"]) == (fields, json.loads(fields))
