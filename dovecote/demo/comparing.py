"""Compare every topic of the demo with its sources."""

from typing import NamedTuple

from dovecote.demo import configs
from dovecote.demo.check import aggregated, deduplicated, evidence, published
from dovecote.demo.check.aggregated import Aggregated, Results
from dovecote.demo.check.deduplicated import Deduplicated, Topics
from dovecote.demo.check.evidence import Where
from dovecote.demo.check.published import Published
from dovecote.demo.topics import TOPICS


class Found(NamedTuple):
    """The comparisons, in the order of the pipeline."""

    published: Published
    deduplicated: Deduplicated
    aggregated: Aggregated

    @property
    def notes(self) -> tuple[str, ...]:
        """All differences, in words."""
        return self.published.notes + self.deduplicated.notes + self.aggregated.notes


def look(where: Where) -> Found:
    """
    Ask Postgres and Kafka, and compare.

    Raises:
        EvidenceMissing: a transaction is still open, or an answer cannot be understood.
    """
    told = {topic: evidence.records(where, topic) for topic in TOPICS}
    flights = told[configs.FLIGHTS]
    sent = [record for record in flights if not record.round]
    left, came = told[configs.DEPARTURES], told[configs.ARRIVALS]
    topics = Topics(left, came, told[configs.RETRY], told[configs.DEAD_LETTER])
    aside = [record for topic in configs.ASIDE for record in told[topic]]
    return Found(
        published.compare(evidence.committed(where), sent),
        deduplicated.compare(flights, topics),
        aggregated.compare(left, came, Results(told[configs.TRIPS], told[configs.DAYS], aside)),
    )
