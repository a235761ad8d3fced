"""
Consume topics, and decide per key which records are handled, with a reason for each other one.

Everything but the results is loaded when it is asked for: code that only decides needs no Kafka.
"""

from typing import TYPE_CHECKING

from dedup.rules.policies.results import (
    Again,
    Dead,
    Done,
    NonRetriable,
    Output,
    Result,
    Retry,
    Skip,
    TakenOver,
    Unavailable,
)
from outbox.lazily import lazy

if TYPE_CHECKING:
    from dedup.consumer import Consumer
    from dedup.inbox.claims import InboxClaims
    from dedup.inbox.connections import AsyncConnections, Connections
    from dedup.inbox.inbox import Inbox
    from dedup.kafka.dead_topic import DeadTopic
    from dedup.retries.backoff import Backoff
    from dedup.retries.plan import Exceptions, Plan, Tier
    from dedup.retries.tenacity import Tenacity
    from dedup.rules.identity import Identity
    from dedup.rules.waiting import Applied, TimedOut
    from dedup.settings.consumer import ConsumerSettings
    from dedup.testing import Outcome, StillWaiting, Trial
    from dedup.waiting.handled import handled, handled_async
    from dedup.waiting.waits import Waits

__all__ = [
    "Again",
    "Applied",
    "AsyncConnections",
    "Backoff",
    "Connections",
    "Consumer",
    "ConsumerSettings",
    "Dead",
    "DeadTopic",
    "Done",
    "Exceptions",
    "Identity",
    "Inbox",
    "InboxClaims",
    "NonRetriable",
    "Outcome",
    "Output",
    "Plan",
    "Result",
    "Retry",
    "Skip",
    "StillWaiting",
    "TakenOver",
    "Tenacity",
    "Tier",
    "TimedOut",
    "Trial",
    "Unavailable",
    "Waits",
    "handled",
    "handled_async",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "Applied": "dedup.rules.waiting",
            "AsyncConnections": "dedup.inbox.connections",
            "Backoff": "dedup.retries.backoff",
            "InboxClaims": "dedup.inbox.claims",
            "Connections": "dedup.inbox.connections",
            "Consumer": "dedup.consumer",
            "ConsumerSettings": "dedup.settings.consumer",
            "DeadTopic": "dedup.kafka.dead_topic",
            "Exceptions": "dedup.retries.plan",
            "Identity": "dedup.rules.identity",
            "Inbox": "dedup.inbox.inbox",
            "Outcome": "dedup.testing",
            "Plan": "dedup.retries.plan",
            "StillWaiting": "dedup.testing",
            "Tenacity": "dedup.retries.tenacity",
            "Tier": "dedup.retries.plan",
            "TimedOut": "dedup.rules.waiting",
            "Trial": "dedup.testing",
            "Waits": "dedup.waiting.waits",
            "handled": "dedup.waiting.handled",
            "handled_async": "dedup.waiting.handled",
        },
        extra="consume",
    )
