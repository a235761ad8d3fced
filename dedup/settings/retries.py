"""The `[retries]` table of a consumer, and the limits on attempts and waits."""

from datetime import timedelta
from functools import reduce
from importlib import import_module
from typing import Annotated, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from dedup.retries.backoff import Backoff
from dedup.retries.plan import Exceptions, Plan, Tier
from dovecote.process.settings.models import Settings
from dovecote.process.settings.values import Duration
from outbox.errors import BadSettings

TopicName: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]


class RetrySettings(Settings):
    """How long a failed record waits, and how often."""

    max_attempts: int = Field(default=10, ge=1)
    """Attempts before a record is a dead letter."""

    base: Duration = timedelta(seconds=1)
    """Wait after the first failure; doubles with each."""

    ceiling: Duration = timedelta(minutes=5)
    """Longest wait."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not timedelta(0) < self.base <= self.ceiling:
            msg = f"need 0 < base <= ceiling, not base={self.base}, ceiling={self.ceiling}"
            raise ValueError(msg)
        return self

    def backoff(self) -> Backoff:
        return Backoff(base=self.base, ceiling=self.ceiling, max_attempts=self.max_attempts)


class TierSettings(Settings):
    """One retry topic."""

    topic: TopicName
    """Its name. The consumer reads it, too."""

    wait: Duration = timedelta(0)
    """Records that wait at least this long wait here, up to the next tier's `wait`."""


class RetriesSettings(RetrySettings):
    """How a consumer treats records that are not handled to their end."""

    dead_letter_topic: TopicName | None = None
    """Topic for dead letters. Absent: no record is given up; a failing record holds its key."""

    tiers: tuple[TierSettings, ...] = ()
    """Retry topics, the shortest wait first. None: a record that failed holds its key, so
    that the order is kept."""

    dead_on: tuple[str, ...] = ()
    """Exceptions, `module:Class`, for which there is no other attempt."""

    skip_on: tuple[str, ...] = ()
    """Exceptions, `module:Class`, for which the record is skipped."""

    hop_limit: int | None = Field(default=None, ge=1)
    """A record that came round more often is a dead letter."""

    amplification_limit: float | None = Field(default=None, gt=1)
    """More records than this for each event in a topic stop the consumer."""

    @field_validator("tiers")
    @classmethod
    def _ascending(cls, tiers: tuple[TierSettings, ...]) -> tuple[TierSettings, ...]:
        waits = [tier.wait for tier in tiers]
        if waits != sorted(set(waits)) or len({tier.topic for tier in tiers}) != len(tiers):
            msg = "each tier needs a topic of its own and a longer wait than the one before"
            raise ValueError(msg)
        return tiers

    @model_validator(mode="after")
    def _no_loop(self) -> Self:
        if self.dead_letter_topic in self.retry_topics():
            msg = "the dead-letter topic must not be a retry topic"
            raise ValueError(msg)
        if self.tiers and self.dead_letter_topic is None:
            msg = "dead_letter_topic is missing: with retry topics no key is held"
            raise ValueError(msg)
        return self

    def retry_topics(self) -> tuple[str, ...]:
        return tuple(tier.topic for tier in self.tiers)

    def plan(self) -> Plan:
        """
        Return the plan that these settings describe.

        Raises:
            BadSettings: there is no such exception.
        """
        return Plan(
            patience=self.backoff(),
            exceptions=Exceptions(
                dead=tuple(_exception("dead_on", name) for name in self.dead_on),
                skip=tuple(_exception("skip_on", name) for name in self.skip_on),
            ),
            tiers=[Tier(tier.topic, tier.wait) for tier in self.tiers],
            dead_letters=self.dead_letter_topic,
            hop_limit=self.hop_limit,
            longest_hold=self.ceiling,
        )


def _exception(setting: str, name: str) -> type[Exception]:
    module, _, path = name.partition(":")
    try:
        found: object = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"retries.{setting}: {name!r} cannot be loaded ({error}); write module:Class"
        raise BadSettings(msg) from error
    if not (isinstance(found, type) and issubclass(found, Exception)):
        msg = f"retries.{setting}: {name!r} is not an exception"
        raise BadSettings(msg)
    return found
