"""Ask the group and the logs where partitions begin, and let the client read from there."""

import logging
from collections.abc import Iterable, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from dedup.retries.aside import Partition
from dedup.rules.starting import is_first_start
from dedup.serving.within import within
from outbox.kafka_errors import require_answers

_log = logging.getLogger("dovecote.consumer")

_ANSWER_SECONDS = 5.0


class Starts:
    """
    Used by the poll thread only, and not within a callback of the client.

    `incremental`: whether the group's protocol changes an assignment by its difference.
    """

    def __init__(self, client: Consumer, *, incremental: bool) -> None:
        self._client, self._incremental = client, incremental

    def at_the_ends(self, partitions: Sequence[Partition]) -> None:
        """
        Commit the end of each partition, if the group has committed nothing in any of them.

        All of them in one request: another member, or this one after a restart, finds either all
        or none. So no record that comes from now on is passed over.

        Raises:
            KafkaException: the answers did not come; ask again. The names of topics follow the
                error, if it may be about them.
            TimeoutError: as above.
        """
        if not partitions:
            return
        places = [TopicPartition(*each) for each in partitions]
        known = require_answers(self._client.committed(places, timeout=_ANSWER_SECONDS))
        if not is_first_start(each.offset for each in known):
            return
        ends = [TopicPartition(*place, end) for place, end in self._at(partitions, OFFSET_END)]
        # While no coordinator answers, the client itself would wait for ever.
        try:
            told = within(
                _ANSWER_SECONDS, lambda: self._client.commit(offsets=ends, asynchronous=False)
            )
            require_answers(told or ())
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID:
                return  # the group has members, so it has started before
            # A client that raises does not say which is refused.
            said, *topics = error.args
            raise KafkaException(
                said, *(topics or dict.fromkeys(t for t, _ in partitions))
            ) from error
        _log.info("the group starts for the first time, at the ends of %d partitions", len(ends))

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """
        Return the earliest offset and the end of each partition's log.

        Raises:
            KafkaException: they are not known now.
        """
        wanted = list(partitions)
        earliest, ends = self._at(wanted, OFFSET_BEGINNING), dict(self._at(wanted, OFFSET_END))
        return {place: (first, ends[place]) for place, first in earliest}

    def read_from(
        self, starting: Sequence[TopicPartition], others: Sequence[TopicPartition]
    ) -> None:
        """
        Let the client read partitions that it has from other offsets.

        `others` are all that it has besides, at their offsets.

        Raises:
            KafkaException: the assignment is changing; ask again.
        """
        client = self._client
        client.resume([*starting])  # before they are assigned, as in `Assignment.assign`
        if self._incremental:
            there = {(each.topic, each.partition) for each in client.assignment()}
            if old := [each for each in starting if (each.topic, each.partition) in there]:
                client.incremental_unassign(old)
            client.incremental_assign([*starting])
        else:
            client.assign([*starting, *others])

    def _at(self, partitions: Sequence[Partition], where: int) -> list[tuple[Partition, int]]:
        # The client takes the two ends of a log for times, as brokers do.
        asked = [TopicPartition(*each, where) for each in partitions]
        found = require_answers(self._client.offsets_for_times(asked, timeout=_ANSWER_SECONDS))
        return [((each.topic, each.partition), each.offset) for each in found]


def beginning(
    partition: TopicPartition, found: TopicPartition | None, *, is_known: bool
) -> TopicPartition:
    """Return the partition with the offset that its metadata belongs to, or its beginning."""
    none = OFFSET_BEGINNING if is_known else OFFSET_STORED
    at = none if found is None else found.offset
    return TopicPartition(partition.topic, partition.partition, at)
