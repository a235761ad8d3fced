"""The parts that there should be, in the form that the rules need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

ReaderKind = Literal["consumer", "spark"]


@dataclass(frozen=True, slots=True)
class OutboxPlan:
    """One outbox that should be there."""

    name: str
    cluster: str
    urls: Sequence[str]
    progress: str
    shards: int


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """One consumer or Spark job that should be there."""

    kind: ReaderKind
    name: str
    cluster: str
    urls: Sequence[str]
    group: str
    topics: Sequence[str]
    writes: Mapping[str, str]
    """The topics that it writes to, with the role of each: `retry`, `dead` or empty."""

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class PushPlan:
    """One push that should be there."""

    name: str
    cluster: str
    urls: Sequence[str]
    has_api: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that should be there."""

    outboxes: Sequence[OutboxPlan]
    readers: Sequence[ReaderPlan]
    pushes: Sequence[PushPlan]

    def urls(self) -> Iterator[tuple[str, str]]:
        """Yield the kind of each process, and its URL."""
        for outbox in self.outboxes:
            yield from (("relay", each) for each in outbox.urls)
        for reader in self.readers:
            yield from ((reader.kind, each) for each in reader.urls)
        for push in self.pushes:
            yield from (("push", each) for each in push.urls)
