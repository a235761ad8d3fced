"""Build the parts of a delivery from its subscription; decides only, and has no effects."""

from collections.abc import Mapping
from datetime import timedelta
from math import ceil
from typing import Any

from dedup.retries.backoff import Patience
from dedup.retries.plan import Plan
from dovecote.push.rules.pacing import patience
from dovecote.push.rules.pacing.breaker import Breaker
from dovecote.push.rules.pacing.limits import Concurrency
from dovecote.push.rules.pacing.window import Window
from dovecote.push.rules.sending.request import Form, Metadata
from dovecote.push.rules.sending.signing import Signer
from dovecote.push.rules.sending.verdict import Rules
from dovecote.push.rules.subscription.fields import is_plain
from dovecote.push.rules.subscription.sections import (
    Backoff,
    PerKey,
    PerPartition,
    signing_key,
)
from dovecote.push.rules.subscription.subscription import Subscription

_MOST_IN_FLIGHT = 10_000
_FIRST_IN_FLIGHT = 8
_PROMPTLY = timedelta(milliseconds=5)
_SOON = timedelta(milliseconds=200)
_LEAST_AHEAD = 100
_DEFAULTS = {
    "client.id": "dovecote-push",
    # How soon a new topic that matches a pattern is found; the default is five minutes.
    "topic.metadata.refresh.interval.ms": "10000",
}
_FETCH_WAITS = {20: 100, 50: 250, 100: 500}
"""Up to so many readers in a process, a broker waits for so many milliseconds for a record."""
_LONGEST_FETCH_WAIT = 1_000


def form(subscription: Subscription) -> Form:
    """Return the form of its requests; the values of its headers are plain text in it."""
    endpoint = subscription.endpoint
    metadata = None
    if subscription.metadata_headers:
        metadata = Metadata(subscription.broker, subscription.consumer_name)
    return Form(
        url=endpoint.url,
        method=endpoint.method,
        query_param_key=endpoint.query_param_key,
        charset=endpoint.charset,
        detect_json=endpoint.detect_json,
        headers={name: value.get_secret_value() for name, value in endpoint.headers.items()},
        format=subscription.format,
        metadata=metadata,
    )


def signer(subscription: Subscription) -> Signer:
    """
    Return the signer of its requests.

    Raises:
        ValueError: a secret is not valid.
    """
    secrets = subscription.signing.secrets if subscription.signing is not None else ()
    return Signer(signing_key(each.get_secret_value()) for each in secrets)


def secrets(subscription: Subscription) -> list[str]:
    """Return the secrets in its requests, and those that sign them."""
    signing = subscription.signing.secrets if subscription.signing is not None else ()
    headers = subscription.endpoint.headers.items()
    return [
        each.get_secret_value()
        for each in (*(value for name, value in headers if not is_plain(name)), *signing)
    ]


def rules(subscription: Subscription) -> Rules:
    """Return the rules for answers."""
    retry = subscription.retry
    return Rules(is_dead=retry.is_dead, obeys=isinstance(retry, Backoff))


def plan(subscription: Subscription) -> Plan:
    """Return the plan for records whose request failed."""
    retry = subscription.retry
    waits: Patience
    if isinstance(retry, Backoff):
        waits = patience.FullJitter(
            base=retry.base, ceiling=retry.ceiling, max_attempts=retry.max_attempts
        )
    else:
        waits = patience.FixedWait(delay=retry.delay, resends=retry.resends)
    return Plan(patience=waits, dead_letters=subscription.dead_letters)


def breaker(subscription: Subscription) -> Breaker:
    """Return its circuit; with a fixed delay, one that never opens."""
    return Breaker() if isinstance(subscription.retry, Backoff) else Breaker(threshold=0)


def most_in_flight(subscription: Subscription) -> int:
    """Return the limit on concurrent requests, over all partitions together."""
    if isinstance(subscription.order, PerPartition):
        return _MOST_IN_FLIGHT  # its windows limit each partition
    return subscription.limits.max_in_flight


def concurrency(subscription: Subscription) -> Concurrency:
    """
    Return the number of its requests at a time, which begins with a few and doubles.

    An endpoint that limits the rate would refuse most of the first requests otherwise.
    """
    most = most_in_flight(subscription)
    gently = isinstance(subscription.retry, Backoff) and isinstance(subscription.order, PerKey)
    return Concurrency(most, first=_FIRST_IN_FLIGHT if gently else None)


def window(order: PerPartition, topic: str) -> Window:
    """
    Return the window for a topic's partition; without a commit period, it takes whole bundles.
    """
    found = order.of(topic)
    return Window(found.concurrency_factor, whole=not found.auto_commit_period)


def fetch_wait(readers: int) -> int:
    """
    Return for how many milliseconds a broker holds an answer back while there is no record.

    Each reader that has nothing to do asks that often, and hundreds of them would fill a broker. A
    record ends the wait at once. But a partition that is read again after a pause waits, until the
    answer about the others is there. A reader keeps the wait with which it has begun.
    """
    return next(
        (wait for most, wait in _FETCH_WAITS.items() if readers <= most), _LONGEST_FETCH_WAIT
    )


def consumer_settings(
    subscription: Subscription, kafka: Mapping[str, str], readers: int = 1
) -> dict[str, Any]:
    """Return the settings of the subscription's consumer, one of `readers` in this process."""
    start = subscription.start if isinstance(subscription.start, str) else "earliest"
    partitions = None
    if subscription.partitions:
        partitions = {each.topic: each.numbers for each in subscription.partitions}
    common: dict[str, Any] = {
        "topics": tuple(subscription.topics_read()),
        "partitions": partitions,
        "group": subscription.group_id,
        "kafka": {**_DEFAULTS, "fetch.wait.max.ms": str(fetch_wait(readers)), **kafka},
        "policy": "every",
        "value": "raw",
        "start": start,
        "drain": timedelta(seconds=10),
    }
    order = subscription.order
    if not isinstance(order, PerPartition):
        in_flight = subscription.limits.max_in_flight
        return {
            **common,
            "null_key": order.null_key,
            "concurrency": in_flight,
            "max_records": max(5_000, 2 * in_flight),
            "commit_every": _SOON,
        }
    bundles = [order, *order.topics.values()]
    factor = max(each.concurrency_factor for each in bundles)
    ahead = max(_LEAST_AHEAD, ceil(factor * order.load_factor))
    period = min(each.auto_commit_period for each in bundles)
    return {
        **common,
        "order": "none",
        "concurrency": 100_000,
        "max_records": max(5_000, 4 * ahead),
        "max_skew": ahead,
        "batch_size": min(500, ahead),
        "commit_every": max(period, _PROMPTLY),
    }
