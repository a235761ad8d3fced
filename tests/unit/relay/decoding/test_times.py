"""The relay writes the times that it reads as integers exactly like the envelope."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from outbox import envelope
from relay.decoding.times import format_time


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_written_as_the_envelope_writes_it(time: datetime) -> None:
    microseconds = (time - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert format_time(microseconds) == envelope.format_time(time)
