"""The settings with which planner and tasks read from Kafka."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, Self, TypeAlias

from dovecote.process.settings.references import arrived, pointer_to
from outbox.secrets import fresh_all

Expired: TypeAlias = Literal["refuse", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """How to reach the brokers, and what to read; goes to the planner and to the executors."""

    kafka: Mapping[str, str]
    """librdkafka's properties, as the settings have them."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further properties of the consumers alone."""
    group: str
    """Names the consumers; nothing is committed with it here."""
    topics: tuple[str, ...]
    """Names and patterns, as the settings have them."""
    most: int | None = None
    """The most records of a batch; None: all that there are."""
    most_bytes: int | None = None
    """The most bytes of values in a batch, about; None: any number."""
    sizes: str = ""
    """The file of `Sizes`, with `most_bytes`."""
    expired: Expired = "refuse"
    """Whether to go on without records that the topic has deleted unread."""

    skip: tuple[str, ...] = ()
    """Places of records that are never read."""

    def __repr__(self) -> str:
        return f"SourceConfig({self.group})"  # the properties may contain secrets

    def encode(self) -> str:
        """Return it as text, with the secrets as they are now and where they are read again."""
        kafka = fresh_all(self.kafka)
        pointers = {name: found for name, value in kafka.items() if (found := pointer_to(value))}
        return json.dumps({**asdict(self), "kafka": kafka, "pointers": pointers})

    @classmethod
    def decode(cls, text: str) -> Self:
        fields = json.loads(text)
        topics, skip = (tuple(fields.pop(name)) for name in ("topics", "skip"))
        for name, pointer in fields.pop("pointers").items():
            fields["kafka"][name] = arrived(pointer, fields["kafka"][name])
        return cls(topics=topics, skip=skip, **fields)

    def skipped(self, topic: str, partition: int) -> frozenset[int]:
        """Return the offsets of a partition that are never read."""
        own = f"{topic}/{partition}/"
        return frozenset(int(each[len(own) :]) for each in self.skip if each.startswith(own))
