"""Give records that their topic refuses for their timestamp the time of writing."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    ConfigResource,
)

from outbox import envelope
from outbox.timestamps import time_of
from spark_jobs.sink import kafka_options
from spark_jobs.sink.outgoing import Outgoing

_SECONDS = 10.0
# An operator may change a topic's configuration.
_KNOWN_SECONDS = 300.0


class Bounds(NamedTuple):
    """How far from the broker's clock a topic takes timestamps, in milliseconds."""

    before: int
    after: int


NOTHING = Bounds(-1, -1)
"""A topic about which this client may not ask: only the time of writing is certain."""

_known: dict[tuple[str, str], tuple[float, Bounds]] = {}
"""By brokers and topic, with the time of asking."""


def fitted(
    outgoing: Sequence[Outgoing], bounds: Mapping[str, Bounds], now: int
) -> tuple[list[Outgoing], int]:
    """
    Return `outgoing`, and how many of them have got the time of writing.

    Each of those keeps its own time in its value, and in `ce_time`.
    """
    outgoing = list(outgoing)
    found = [
        _restamped(each)
        if each.timestamp and (of := bounds.get(each.topic)) and not _takes(of, each, now)
        else each
        for each in outgoing
    ]
    return found, sum(one is not other for one, other in zip(found, outgoing, strict=True))


def known(kafka: Mapping[str, str]) -> dict[str, Bounds]:
    """Return the bounds of the topics that have refused a timestamp lately."""
    since, brokers = time.monotonic() - _KNOWN_SECONDS, kafka["bootstrap.servers"]
    return {
        topic: bounds
        for (of, topic), (asked, bounds) in _known.items()
        if of == brokers and asked > since
    }


def ask(kafka: Mapping[str, str], topics: Iterable[str]) -> dict[str, Bounds]:
    """Ask for the bounds of `topics`; `NOTHING` for one about which this client may not ask."""
    admin = kafka_options.made(AdminClient, lambda: kafka_options.quiet(kafka))
    asked = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics],
        request_timeout=_SECONDS,
    )
    found: dict[str, Bounds] = {}
    for resource, answer in asked.items():
        try:
            fields = {name: each.value for name, each in answer.result().items()}
            found[resource.name] = _bounds(fields)
        except KafkaException:
            found[resource.name] = NOTHING
        _known[kafka["bootstrap.servers"], resource.name] = (
            time.monotonic(),
            found[resource.name],
        )
    return found


def _bounds(fields: Mapping[str, str | None]) -> Bounds:
    # Brokers before 3.6 have one bound for both.
    both = fields.get("message.timestamp.difference.max.ms")
    before, after = (
        fields.get(f"message.timestamp.{each}.max.ms") or both for each in ("before", "after")
    )
    return Bounds(-1 if before is None else int(before), -1 if after is None else int(after))


def _takes(bounds: Bounds, record: Outgoing, now: int) -> bool:
    return -bounds.after <= now - record.timestamp <= bounds.before


def _restamped(record: Outgoing) -> Outgoing:
    happened = time_of(record.timestamp)
    headers = record.headers
    if happened is not None and not any(name == envelope.TIME for name, _ in headers):
        headers = [*headers, (envelope.TIME, envelope.format_time(happened).encode())]
    return record._replace(timestamp=0, headers=headers)
