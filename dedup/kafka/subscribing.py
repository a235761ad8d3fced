"""Subscribe to topics by their names: also those that patterns take in, now and later."""

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition

from dedup.explicit import explicit
from dedup.kafka.assignment import Assignment
from dedup.kafka.starting import Starts
from dedup.retries.aside import Partition
from dedup.rules.topics import any_pattern, matched
from dedup.settings.consumer import ConsumerSettings
from dovecote.process.rarely import Rarely
from dovecote.process.topics import group_protocols
from outbox.errors import BadSettings
from outbox.kafka_errors import read_of_any, right, told

_rarely = Rarely(logging.getLogger("dovecote.consumer"))

_LIST_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_LATER_SECONDS = 15.0

Listing: TypeAlias = Mapping[str, Any]
"""The client's `TopicMetadata` of each topic."""


class Subscribing:
    """
    Begins to read once, and looks for topics from time to time; used by the poll thread only.

    We match patterns ourselves: the client and the broker, which match for one protocol each, read
    them differently. A group that starts with `latest` has its first start before it subscribes.
    Then what comes later is known to be later. `said` takes why Kafka does not say what is there.
    """

    def __init__(
        self,
        client: Consumer,
        settings: ConsumerSettings,
        assignment: Assignment,
        starts: Starts,
        *,
        own: Collection[str],
        said: Callable[[str], None],
    ) -> None:
        self._client, self._settings, self._assignment = client, settings, assignment
        self._starts, self._own, self._said = starts, frozenset(own), said
        self._entries = settings.topics_read()
        self._has_patterns = any_pattern(self._entries)
        self._asks = self._has_patterns or settings.start == "latest"
        whole = [] if settings.partitions is None else {*self._entries} - {*settings.partitions}
        self._whole = sorted(whole)
        """Topics that are read whole although partitions are explicit."""
        self._read: set[Partition] = set()
        """The explicit partitions."""
        self._interval = settings.refresh
        self._next = 0.0
        self._begun = False
        self._missed: set[str] = set()
        self.names: list[str] = []
        """The topics that are read."""

    @property
    def is_alone(self) -> bool:
        """Whether it has nothing to join a group for, at least for now."""
        return self._begun and (self._settings.partitions is not None or not self.names)

    @property
    def lacking(self) -> str:
        """Which patterns take in no topic; empty: each has one, or nothing is known yet."""
        if not self._begun or self.names:
            return ""
        return f"no topic matches {', '.join(self._entries)}"

    def tick(self) -> None:
        """
        Do what is due: ask which topics there are, or subscribe to them.

        Raises:
            DovecoteError: an explicit partition cannot be read.
            BadSettings: the brokers take no members with this protocol.
        """
        if time.monotonic() < self._next:
            return
        try:
            if self._begun:
                self._refresh(self._listed())
            else:
                self._begin(self._listed() if self._asks else {})
        except (KafkaException, TimeoutError) as error:
            why = self._explained(error)
            self._said(why)
            _rarely.warning("which topics there are, and where to begin, is not known: %s", why)
            pause = _LATER_SECONDS if self._begun else _PAUSE_SECONDS
            self._next = time.monotonic() + pause

    def _explained(self, error: KafkaException | TimeoutError) -> str:
        if isinstance(error, TimeoutError):
            return "no answer"
        said, *topics = error.args
        return told(said, right("Read", "group", self._settings.group), *read_of_any(topics))

    def _listed(self) -> Listing:
        # In this thread: another one would hardly get its turn at the client.
        found: Listing = self._client.list_topics(timeout=_LIST_SECONDS).topics
        return found

    def _begin(self, there: Listing) -> None:
        names = matched(self._entries, there)
        if self._settings.start == "latest":
            self._starts.at_the_ends(
                [
                    (name, number)
                    for name in names
                    if name in there and name not in self._own
                    for number in sorted(there[name].partitions)
                ]
            )
        if self._settings.partitions is not None:
            self._take(explicit(self._client, self._settings))
            self.names = names
        else:
            self._require_protocol()
            self._subscribe(names)
        self._begun = True
        self._wait_for_more()

    def _require_protocol(self) -> None:
        """
        Check that brokers take members with a protocol that is not the old one.

        The client waits for ever, without a word, if they do not.
        """
        if self._settings.protocol == "classic":
            return
        taken = group_protocols(self._settings.kafka)
        if taken and self._settings.protocol not in taken:
            msg = (
                f"the brokers take groups with the protocol {', '.join(taken)}, not "
                f"{self._settings.protocol}, which needs Kafka 4.0: leave `protocol` out"
            )
            raise BadSettings(msg)

    def _take(self, partitions: list[TopicPartition]) -> None:
        self._assignment.assign(self._client, partitions)
        self._read |= {(each.topic, each.partition) for each in partitions}

    def _refresh(self, there: Listing) -> None:
        if self._whole:
            found = {
                (topic, number)
                for topic in self._whole
                if topic in there
                for number in there[topic].partitions
            }
            if more := sorted(found - self._read):
                self._take([TopicPartition(*each) for each in more])
            self._wait_for_more()
            return
        names = matched(self._entries, there)
        # A broker that has just come up, or is behind, may lack topics for a moment.
        missed = {*self.names} - {*names}
        self._subscribe([*names, *(each for each in self.names if each in missed - self._missed)])
        self._missed = missed & {*self.names}
        self._wait_for_more()

    def _wait_for_more(self) -> None:
        looks = self._has_patterns or self._whole
        self._next = time.monotonic() + self._interval if looks else math.inf

    def _subscribe(self, names: list[str]) -> None:
        if {*names} == {*self.names}:
            return
        assignment = self._assignment
        if names:
            self._client.subscribe(
                names,
                on_assign=assignment.assign,
                on_revoke=assignment.revoke,
                on_lost=assignment.lose,
            )
        else:
            self._client.unsubscribe()
        self.names = names
