"""Ask a cluster of Kafka for topics, ends and groups, with a client that lasts."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own export, not marked as one
    AdminClient,
    OffsetSpec,
)

from dovecote.console.rules.facts import ClusterFacts, GroupFacts, TopicFacts
from outbox.errors import DovecoteError
from outbox.kafka import kafka_logger
from outbox.kafka_errors import FORBIDDEN, right, told
from outbox.tokens.source import lasting

_log = kafka_logger("dovecote.console.kafka")
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # its own types say less
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # as above
_REBALANCING = frozenset(
    {ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING}
)
_FIRST_EVERY = 30
"""The first offsets of topics are asked for only at each of so many looks."""


class ClusterSource:
    """The topics and groups of one cluster; one thread asks."""

    def __init__(
        self, kafka: Mapping[str, str], groups: Mapping[str, Collection[str]], timeout: float
    ) -> None:
        """Prepare to ask; `groups` are the consumer groups to look at, and the topics of each."""
        self._kafka, self._groups, self._timeout = dict(kafka), groups, timeout
        self._admin: AdminClient | None = None
        self._looks = 0
        self._first: dict[tuple[str, int], int] = {}
        self.requests = 0
        """Requests so far, as the client sends them to a cluster of one broker."""

    def ask(self, wanted: Collection[str]) -> ClusterFacts:
        """
        Return the facts about the topics `wanted`, and about the groups.

        Raises:
            DovecoteError: Kafka does not answer in time, or refuses.
        """
        try:
            return self._asked(wanted)
        except KafkaException as error:
            # The next look has a client of its own: this one waits longer before it connects anew.
            self.close()
            what = error.args[0]
            raise DovecoteError(told(what, right("Describe", "topic", "*"))) from error

    def close(self) -> None:
        """End the client."""
        self._admin = None

    def _asked(self, wanted: Collection[str]) -> ClusterFacts:
        if self._admin is None:
            self._admin = lasting(AdminClient, self._kafka, _log, patience=self._timeout)
        self.requests += 1
        there = self._admin.list_topics(timeout=self._timeout).topics
        names = {*wanted, *(name for topics in self._groups.values() for name in topics)}
        known = {name: there[name] for name in sorted(names & there.keys())}
        places = [(name, number) for name, each in known.items() for number in each.partitions]
        ends = self._offsets(places, _LATEST)
        if self._looks % _FIRST_EVERY == 0:
            self._first = self._offsets(places, _EARLIEST)
        self._looks += 1
        topics = {}
        for name, each in known.items():
            found = [ends.get((name, number)) for number in each.partitions]
            end = None if None in found else sum(number or 0 for number in found)
            first = sum(self._first.get((name, number), 0) for number in each.partitions)
            leaderless = sum(one.leader < 0 for one in each.partitions.values())
            kept = None if end is None else max(0, end - first)
            topics[name] = TopicFacts(len(each.partitions), leaderless, end, kept)
        return ClusterFacts(topics, self._of_groups(ends))

    def _offsets(
        self, places: Collection[tuple[str, int]], spec: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        if not places or self._admin is None:
            return {}
        self.requests += 1
        asked = self._admin.list_offsets(
            {TopicPartition(*place): spec for place in places}, request_timeout=self._timeout
        )
        found = {}
        for place, answer in asked.items():
            try:
                found[place.topic, place.partition] = self._result(answer).offset
            except KafkaException as error:
                _log.debug("the offsets of %s are not known: %s", place, error)
        return found

    def _of_groups(self, ends: Mapping[tuple[str, int], int]) -> dict[str, GroupFacts]:
        if not self._groups or self._admin is None:
            return {}
        self.requests += len(self._groups)
        described = self._admin.describe_consumer_groups(
            list(self._groups), request_timeout=self._timeout
        )
        found = {}
        for name, answer in described.items():
            try:
                told_of = self._result(answer)
            except KafkaException as error:
                if error.args[0].code() in FORBIDDEN:
                    raise DovecoteError(
                        told(error.args[0], right("Describe", "group", name))
                    ) from error
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    members, rebalancing = 0, False
                else:
                    raise
            else:
                members, rebalancing = len(told_of.members), told_of.state in _REBALANCING
            found[name] = self._group(name, members, rebalancing=rebalancing, ends=ends)
        return found

    def _group(
        self,
        name: str,
        members: int,
        *,
        rebalancing: bool,
        ends: Mapping[tuple[str, int], int],
    ) -> GroupFacts:
        assert self._admin is not None  # noqa: S101  # its caller has it
        self.requests += 1
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=self._timeout
        )
        try:
            places = self._result(asked[name]).topic_partitions or []
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            places = []
        at = {(each.topic, each.partition): each.offset for each in places if each.offset >= 0}
        lag: dict[str, int] = {}
        for (topic, partition), end in ends.items():
            if topic in self._groups[name]:
                # Without an offset the group begins at the start, or has lost its place.
                begin = at.get((topic, partition), self._first.get((topic, partition), 0))
                lag[topic] = lag.get(topic, 0) + max(0, end - begin)
        return GroupFacts(members, rebalancing, lag, sum(at.values()))

    def _result(self, answer: "Future[Any]") -> Any:  # noqa: ANN401  # of each request its own
        return answer.result(self._timeout + 1)
