"""What the settings file says that there is, in the form that the rules need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dovecote.observe.sources import OutboxSource, SourcesSettings, SparkSource

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


def plan(sources: SourcesSettings, clusters: Mapping[str, str]) -> Plan:
    """Return the plan of a file; `clusters` names the cluster of each part, by its id."""
    readers = [
        ReaderPlan(
            "consumer",
            name,
            clusters[f"consumer/{name}"],
            each.metrics,
            each.group,
            each.topics,
            {
                **{tier.topic: "retry" for tier in each.retries.tiers},
                **dict.fromkeys(filter(None, [each.retries.dead_letter_topic]), "dead"),
            },
        )
        for name, each in sources.consumer.items()
    ]
    readers += [
        ReaderPlan(
            "spark",
            name,
            clusters[f"spark/{name}"],
            each.metrics,
            "",
            each.source.topics,
            _written(each),
        )
        for name, each in sources.spark.items()
    ]
    return Plan(
        [_outbox(name, each, clusters[f"outbox/{name}"]) for name, each in sources.outbox.items()],
        readers,
        [
            PushPlan(name, clusters[f"push/{name}"], each.metrics, each.url is not None)
            for name, each in sources.push.items()
        ],
    )


def _outbox(name: str, source: OutboxSource, cluster: str) -> OutboxPlan:
    return OutboxPlan(name, cluster, source.metrics, source.progress_topic, source.shards)


_ROLES = {"topic": "", "retry_topic": "retry", "dead_letter_topic": "dead"}


def _written(source: SparkSource) -> dict[str, str]:
    """Return the topics of a job's output."""
    return {
        str(source.output[field]): role
        for field, role in _ROLES.items()
        if isinstance(source.output.get(field), str) and source.output[field]
    }
