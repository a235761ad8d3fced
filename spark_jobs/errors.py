"""
What can stop a Spark job.

DovecoteError
└── JobError              the base
    ├── MarkerRefused     what earlier batches left behind is not this query's; an operator decides
    ├── Unwritable        a record that no topic takes, not even the dead letters
    ├── KafkaUnavailable  Kafka does not answer, or did not take a batch in time
    └── QueryFailed       Spark ended the query; the message quotes its reason
"""

from outbox.errors import DovecoteError


class JobError(DovecoteError):
    """The base of what can stop a Spark job."""


class MarkerRefused(JobError):
    """A marker was left by another query, another partition count or other input."""


class Unwritable(JobError):
    """A record cannot be written to any topic; its batch is not committed, nothing is lost."""


class KafkaUnavailable(JobError):
    """Kafka does not answer, or did not take a batch in time; nothing is lost."""


class QueryFailed(JobError):
    """Spark ended the query."""


REPORTED = {kind.__name__: kind for kind in (MarkerRefused, Unwritable, KafkaUnavailable)}
"""What a task reports by its name, so that it arrives at the driver as it was raised."""


class StateTooLarge(JobError):
    """A bucket has outgrown its limit."""
