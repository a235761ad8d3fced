"""Name the consumers and Spark jobs of the watch file as readers of topics."""

from collections.abc import Iterator, Mapping

from dovecote.observe.find.rules import plan
from dovecote.observe.find.rules.facts import Taker
from dovecote.observe.sources import SourcesSettings


def takers(found: SourcesSettings) -> Iterator[tuple[Taker, Mapping[str, str]]]:
    """Yield each of them with the properties of its cluster."""
    for name, consumer in found.consumer.items():
        retries = tuple(each.topic for each in consumer.retries.tiers)
        entries = tuple(each for each in consumer.topics if each not in retries)
        dead = consumer.retries.dead_letter_topic
        yield (
            Taker(f"consumer/{name}", "consumer", consumer.group, entries, retries, dead),
            consumer.kafka,
        )
    for name, job in found.spark.items():
        named = plan.topics_in(job.output)
        dead = named.pop("dead_letter_topic", None)
        outputs = tuple(dict.fromkeys(named.values()))
        group = f"dovecote.{job.spark.query}" if job.spark.query else ""
        part, topics = f"spark/{name}", job.source.topics
        yield Taker(part, "spark", group, topics, dead=dead, outputs=outputs), job.kafka
