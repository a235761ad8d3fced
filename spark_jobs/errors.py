"""
Errors that can stop a Spark job.

Each is a `JobError`:

* MarkerRefused: earlier batches left another query's marker; an operator must decide
* Unwritable: a record that no topic takes, not even the one for dead letters
* KafkaUnavailable: Kafka does not answer, or did not take a batch in time
* SourceChanged: a topic that is read is not what it was, or has deleted unread records
* CheckpointUnavailable: the file system of the checkpoint does not answer
* QueryFailed: Spark ended the query; the message quotes its reason
"""

from outbox.errors import DovecoteError


class JobError(DovecoteError):
    """The base class of errors that can stop a Spark job."""


class MarkerRefused(JobError):
    """Another query, another number of partitions or other input left a marker."""


class Unwritable(JobError):
    """No topic takes a record; its batch is not committed, and nothing is lost."""


class KafkaUnavailable(JobError):
    """Kafka does not answer, or did not take a batch in time; nothing is lost."""


class SourceChanged(JobError):
    """A topic is gone, was made anew, or no longer has the records that are to be read."""


class CheckpointUnavailable(JobError):
    """The file system of the checkpoint does not answer; nothing is lost."""


class QueryFailed(JobError):
    """Spark ended the query."""


REPORTED = {
    kind.__name__: kind for kind in (MarkerRefused, Unwritable, KafkaUnavailable, SourceChanged)
}
"""The errors that a task reports by name; they arrive at the driver as they were raised."""


class StateTooLarge(JobError):
    """A bucket has outgrown its limit."""


class StateDamaged(JobError):
    """A part of the state is missing from the checkpoint."""
