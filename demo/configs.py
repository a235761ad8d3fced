"""The configuration files of the demo's relay and Spark job, as one would write them by hand."""

import json
from pathlib import Path
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict

from demo.handler import FILTER

FLIGHTS = "flights"
DEPARTURES = "departures"
RETRY = "flights.retry"
DEAD_LETTER = "flights.dead"
QUERY = "departures"
MARKERS = f"dovecote.markers.{QUERY}"
"""The topic in which the job's markers are, named after its query."""

PARTITIONS = 4

_RELAY = """\
# The relay of the demo: `dovecote relay --config relay.toml`
name = "flight-ops"       # transactional.id and progress are named after it
mode = "exactly_once"
poll_min = "20ms"         # small machine: fewer, larger transactions instead of the lowest latency

[dsn]                     # the service's database, which has the outbox: any libpq parameter
{dsn}

[kafka]                   # any librdkafka property
"bootstrap.servers" = {bootstrap}
"""

_DEDUP = """\
# The Spark job of the demo: `dovecote spark dedup --config dedup.toml`
[kafka]                   # any librdkafka property
"bootstrap.servers" = {bootstrap}

[source]
topics = [{flights}]
starting_offsets = "earliest"
max_offsets_per_trigger = 20000

[operator]                # `dovecote replay first_match --config dedup.toml` reads this table too
type = "first_match"      # per flight and micro-batch: the first event that passes and succeeds
filter = {filter}
handler = "demo.handler:publish_departure"

[output]
topic = {departures}
retry_topic = {retry}
dead_letter_topic = {dead_letter}

[retry]
max_attempts = 5
base = "1s"

[spark]
query = {query}       #  one query, one name: its markers and transactions carry it
checkpoint = {checkpoint}
shuffle_partitions = 2
trigger = "3s"
master = "local[2]"

[spark.conf]              # any Spark configuration
# The job lives for a minute on a small machine: compile quickly, not well.
"spark.driver.defaultJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


class Files(NamedTuple):
    """The written files."""

    relay: Path
    dedup: Path


def write(directory: Path, *, dsn: str, bootstrap: str) -> Files:
    """
    Write both files into `directory`; the job's checkpoint will be beside them.

    No password is written down: the relay takes it from the variable `PGPASSWORD`.
    """
    files = Files(directory / "relay.toml", directory / "dedup.toml")
    files.relay.write_text(_RELAY.format(dsn=_table(dsn), bootstrap=_text(bootstrap)))
    files.dedup.write_text(
        _DEDUP.format(
            bootstrap=_text(bootstrap),
            flights=_text(FLIGHTS),
            filter=_text(FILTER),
            departures=_text(DEPARTURES),
            retry=_text(RETRY),
            dead_letter=_text(DEAD_LETTER),
            query=_text(QUERY),
            checkpoint=_text(str(checkpoint(directory))),
        )
    )
    return files


def checkpoint(directory: Path) -> Path:
    """Return where the job of `directory` keeps its progress."""
    return directory / "checkpoint"


def _table(dsn: str) -> str:
    parameters = conninfo_to_dict(dsn)
    lines = [f"{name} = {_text(str(value))}" for name, value in parameters.items()]
    if "password" in parameters:
        lines[list(parameters).index("password")] = 'password = { env = "PGPASSWORD" }'
    return "\n".join(lines)


def _text(value: str) -> str:
    # A JSON string is a TOML string too.
    return json.dumps(value)
