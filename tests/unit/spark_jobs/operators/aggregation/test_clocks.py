"""The times of daily triggers: named zones, the days their clocks change, leap days, midnight."""

import math
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.operators.aggregation.triggers.clocks import Daily
from spark_jobs.operators.aggregation.triggers.time_patterns import TimePattern


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _after(text: str, moment: str, *, pattern: str = "HH:mm", zone: str = "UTC") -> str:
    found = Daily.parse(text, TimePattern(pattern), zone).after(_ms(moment))
    return datetime.fromtimestamp(found / 1000, UTC).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "pattern", "zone", "moment", "expected"),
    [
        # Berlin skips 02:00-03:00 on 30 March 2025: 02:30 comes at 03:30 summer time.
        ("02:30", "HH:mm", "Europe/Berlin", "2025-03-29T02:00Z", "2025-03-30 01:30"),
        ("02:30", "HH:mm", "Europe/Berlin", "2025-03-30T01:30Z", "2025-03-31 00:30"),
        # It has 02:00-03:00 twice on 26 October 2025: the first counts, and only that one.
        ("02:30", "HH:mm", "Europe/Berlin", "2025-10-25T12:00Z", "2025-10-26 00:30"),
        ("02:30", "HH:mm", "Europe/Berlin", "2025-10-26T00:30Z", "2025-10-27 01:30"),
        # A time outside the change moves by an hour in UTC.
        ("11:05", "HH:mm", "America/New_York", "2025-03-08T20:00Z", "2025-03-09 15:05"),
        ("11:05", "HH:mm", "America/New_York", "2025-03-08T10:00Z", "2025-03-08 16:05"),
        # An offset in the pattern replaces the zone, and has no summer time.
        (
            "11:05:00+03:00",
            "HH:mm:ssXXX",
            "Europe/Berlin",
            "2025-07-01T00:00Z",
            "2025-07-01 08:05",
        ),
        # Leap days: one has its own firing, and the day after follows.
        ("23:59", "HH:mm", "Europe/Moscow", "2024-02-28T21:00Z", "2024-02-29 20:59"),
        ("23:59", "HH:mm", "Europe/Moscow", "2024-02-29T20:59Z", "2024-03-01 20:59"),
        ("12:00", "HH:mm", "UTC", "2023-02-28T12:00Z", "2023-03-01 12:00"),
        # Midnight is the beginning of a day in the day's zone.
        ("00:00", "HH:mm", "Asia/Tokyo", "2025-01-01T14:59Z", "2025-01-01 15:00"),
        ("00:00", "HH:mm", "Asia/Tokyo", "2025-01-01T15:00Z", "2025-01-02 15:00"),
        ("24:00", "kk:mm", "Asia/Tokyo", "2025-01-01T14:59Z", "2025-01-01 15:00"),
        # Beirut's clocks skip midnight itself, and Samoa skipped a whole day.
        ("00:00", "HH:mm", "Asia/Beirut", "2025-03-29T12:00Z", "2025-03-29 22:00"),
        ("09:00", "HH:mm", "Pacific/Apia", "2011-12-29T19:00Z", "2011-12-30 19:00"),
        # A quarter of an hour away from everybody else.
        ("06:00", "HH:mm", "Asia/Kathmandu", "2025-05-05T00:00Z", "2025-05-05 00:15"),
    ],
)
def test_a_daily_trigger_fires_at(
    text: str, pattern: str, zone: str, moment: str, expected: str
) -> None:
    assert _after(text, moment, pattern=pattern, zone=zone) == expected


def test_a_time_that_has_just_come_means_tomorrow() -> None:
    assert _after("12:00", "2025-01-01T12:00Z") == "2025-01-02 12:00"
    assert _after("12:00", "2025-01-01T11:59:59.999Z") == "2025-01-01 12:00"


ZONES = ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Tehran", "UTC"]


@given(
    st.dates(date(1971, 1, 2), date(2037, 12, 30)),
    st.times(),
    st.sampled_from(ZONES),
)
def test_every_day_has_exactly_one_firing(day: date, time: object, zone: str) -> None:
    daily = Daily(time, ZoneInfo(zone))  # type: ignore[arg-type]  # a time it is
    moment = round(datetime.combine(day, datetime.min.time(), UTC).timestamp() * 1000)
    one = daily.after(moment)
    two = daily.after(one)

    assert moment < one
    # In 1988 the clocks of St. John's were set forward by two hours, shortly after midnight.
    assert timedelta(hours=22) <= timedelta(milliseconds=two - one) <= timedelta(hours=26)
    # A time that the clocks skip comes later, and so may lie on the next day.
    days = [day + timedelta(days=number) for number in range(-2, 5)]
    moments = [datetime.combine(each, time, ZoneInfo(zone)).timestamp() for each in days]  # type: ignore[arg-type]  # as above
    wanted = [math.floor(round(each * 1_000_000) / 1_000) for each in moments]
    assert wanted.index(two) - wanted.index(one) == 1


def _local(moment: int, zone: str) -> datetime:
    found = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=moment)
    return found.astimezone(ZoneInfo(zone))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("HH:mm:ss", "11:05:09", "11:05:09"),
        ("H:mm", "9:05", "09:05:00"),
        ("hh:mm a", "12:30 AM", "00:30:00"),
        ("h:mm a", "1:30 PM", "13:30:00"),
        ("KK a", "11 PM", "23:00:00"),
        ("HH'h'mm", "11h05", "11:05:00"),
        ("HH''mm", "11'05", "11:05:00"),
        ("HHmmss.SSS", "110509.25", None),
        ("HHmmss.SSS", "110509.250", "11:05:09.250000"),
        ("HH:mmX", "11:05+03", "11:05:00 10800"),
        ("HH:mmXX", "11:05-0330", "11:05:00 -12600"),
        ("HH:mmXXX", "11:05Z", "11:05:00 0"),
        ("HH:mmxxx", "11:05Z", None),
        ("HH:mmZ", "11:05+0100", "11:05:00 3600"),
        ("HH:mm", "25:00", None),
        ("HH:mm", "1:00", None),
        ("HH:mmXXX", "11:05+19:00", None),
    ],
)
def test_a_time_is_read_as_javas_letters_say(
    pattern: str, text: str, expected: str | None
) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"\w"):
            TimePattern(pattern).parse(text)
        return
    found = TimePattern(pattern).parse(text)
    offset = "" if found.zone is None else found.zone.utcoffset(None)
    shown = f" {offset.total_seconds():.0f}" if isinstance(offset, timedelta) else ""
    assert f"{found.time}{shown}" == expected


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("yyyy-MM-dd HH:mm", '"yyyy" is not of a time of day'),
        ("mm:ss", "has no hour"),
        ("hh:mm", 'no "a" for which half'),
        ("HH:HH", 'has "H" twice'),
        ("HH:mm X x", 'has an offset twice: "X", "x"'),
        ("HH:mmZ XXX", 'has an offset twice: "Z", "X"'),
        ("HH:mm[:ss]", r'"\[" is not supported'),
        ("HH:mm:ssO", '"O" is not of a time of day'),
    ],
)
def test_a_pattern_with_other_letters_is_refused(pattern: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        TimePattern(pattern)


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match='no time zone "Mars/Olympus"'):
        Daily.parse("11:05", TimePattern("HH:mm"), "Mars/Olympus")
