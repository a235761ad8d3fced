"""Take from the settings file which parts there should be."""

from collections.abc import Mapping

from dovecote.console.rules.plan import OutboxPlan, Plan, PushPlan, ReaderPlan
from dovecote.observe.sources import OutboxSource, SourcesSettings, SparkSource


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
