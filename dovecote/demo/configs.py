"""Configuration files for the demo's relay and Spark jobs, as one would write them by hand."""

import json
from pathlib import Path
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict

from dovecote.demo.handler import FILTER

FLIGHTS = "flights"
DEPARTURES, ARRIVALS = "departures", "arrivals"
RETRY = "flights.retry"
DEAD_LETTER = "flights.dead"
TRIPS, DAYS = "trips", "days"
QUERY = "flights"
ASIDE = ("trips.late", "trips.dead", "days.late", "days.dead")
"""Topics for records that pairing and sessions could not use: empty, if all is well."""

PARTITIONS = 4

_RELAY = """\
# The relay of the demo: `dovecote relay run --config relay.toml`
name = "flight-ops"       # transactional.id and progress are named after it
mode = "exactly_once"
poll_min = "20ms"         # small machine: fewer, larger transactions instead of the lowest latency

[dsn]                     # the service's database, which has the outbox: any libpq parameter
{dsn}

[kafka]                   # any librdkafka property
"bootstrap.servers" = {bootstrap}
"""

_DEDUP = """\
# The first Spark job of the demo: `dovecote spark dedup --config dedup.toml`
[kafka]                   # any librdkafka property
"bootstrap.servers" = {bootstrap}

[source]
topics = [{flights}]
max_offsets_per_trigger = 20000

[operator]                # `dovecote replay exact --config dedup.toml` reads this table too
type = "exact"            # each event once, ...
remember = "1h"           # ... also if a duplicate comes in a later batch
filter = {filter}
handler = "dovecote.demo.handler:publish"

[output]
topic = {departures}
by_type = {{ FlightArrived = {arrivals} }}
retry_topic = {retry}
dead_letter_topic = {dead_letter}

[retry]
max_attempts = 5
base = "500ms"

[recirculation]           # what failed comes back when it is due
run = "together"
trigger = "1s"

[state]
buckets = 4

[spark]
query = {query}         # one query, one name: its markers and transactions carry it
checkpoint = {checkpoint}
shuffle_partitions = 2
trigger = "2s"
master = "local[2]"

[spark.conf]              # any Spark configuration; of jobs that run together, the first one's
# The jobs live for a minute on a small machine: compile quickly, not well.
"spark.driver.defaultJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""

_TRIPS = """\
# Departures and arrivals, paired: `dovecote spark pairing --config trips.toml`
[kafka]
"bootstrap.servers" = {bootstrap}

[source]
topics = [{departures}, {arrivals}]
starting_offsets = "earliest"

[operator]
type = "pairing"
key = ["flight"]
event_time = "at"
within = "24h"
emit = "on_pair"          # a whole trip at once ...
close_after = "25s"       # ... and half a one when the other half has not come by then, ...
max_lag = "2s"            # ... but not while records wait to be read

[operator.sides]
departure = {{ topic = {departures}, field = "delay" }}
arrival = {{ topic = {arrivals}, field = "delay" }}
"""

_DAYS = """\
# The days of an aircraft: `dovecote spark sessions --config days.toml`
[kafka]
"bootstrap.servers" = {bootstrap}

[source]
topics = [{departures}]

[operator]
type = "sessions"
key = ["tail"]            # which aircraft
event_time = "at"
gap = "8h"                # so long on the ground, and the next day begins
grace = "8760h"           # event time runs a thousand times faster here than a clock:
close_after = "25s"       # the clock says when a day is over, ...
max_lag = "2s"            # ... but not while records wait to be read
aggregate = "count"
"""


_REST = """
[output]
topic = {output}
late_topic = {late}
dead_letter_topic = {dead_letter}

[state]
buckets = 4

[spark]
query = {query}
checkpoint = {checkpoint}
shuffle_partitions = 2
trigger = "2s"
"""


class Files(NamedTuple):
    """The written files."""

    relay: Path
    dedup: Path
    trips: Path
    days: Path


def write(directory: Path, *, dsn: str, bootstrap: str) -> Files:
    """
    Write the files into `directory`; the jobs' checkpoints will be beside them.

    The files contain no password: the relay takes it from the variable `PGPASSWORD`.
    """
    names = ("relay.toml", "dedup.toml", "trips.toml", "days.toml")
    files = Files(*(directory / name for name in names))
    kafka = _text(bootstrap)
    topics = {"departures": _text(DEPARTURES), "arrivals": _text(ARRIVALS)}
    files.relay.write_text(_RELAY.format(dsn=_table(dsn), bootstrap=kafka))
    files.dedup.write_text(
        _DEDUP.format(
            **topics,
            bootstrap=kafka,
            flights=_text(FLIGHTS),
            filter=_text(FILTER),
            retry=_text(RETRY),
            dead_letter=_text(DEAD_LETTER),
            query=_text(QUERY),
            checkpoint=_text(str(checkpoint(directory))),
        )
    )
    for file, text, output in ((files.trips, _TRIPS, TRIPS), (files.days, _DAYS, DAYS)):
        file.write_text(
            (text + _REST).format(
                **topics,
                bootstrap=kafka,
                output=_text(output),
                late=_text(late(output)),
                dead_letter=_text(dead(output)),
                query=_text(output),
                checkpoint=_text(str(checkpoint(directory, output))),
            )
        )
    return files


def checkpoint(directory: Path, query: str = QUERY) -> Path:
    """Return the directory of a job's checkpoint in `directory`."""
    return directory / "checkpoints" / query


def late(output: str) -> str:
    """Return the topic for records that came too late for `output`."""
    return f"{output}.late"


def dead(output: str) -> str:
    """Return the topic for records that cannot become part of `output`."""
    return f"{output}.dead"


def _table(dsn: str) -> str:
    parameters = conninfo_to_dict(dsn)
    lines = [f"{name} = {_text(str(value))}" for name, value in parameters.items()]
    if "password" in parameters:
        lines[list(parameters).index("password")] = 'password = { env = "PGPASSWORD" }'
    return "\n".join(lines)


def _text(value: str) -> str:
    # A JSON string is a TOML string too.
    return json.dumps(value)
