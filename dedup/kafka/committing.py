"""Commit offsets: rarely, without waiting, and again if a commit failed."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dedup.rules.lanes.assigned import Assigned
from dedup.rules.lanes.offset_metadata import LIMIT
from dedup.rules.lanes.offsets import Commit
from dedup.serving.within import within
from dovecote.process.rarely import Rarely

if TYPE_CHECKING:
    from dedup.tracing.consuming import Committing, ConsumerSpans

_log = logging.getLogger("dovecote.consumer.commit")
_rarely = Rarely(_log, most=1)

# Do not wait for ever for a callback that never comes: its request has timed out by then.
_LONGEST_SECONDS = 15.0
_ANSWER_SECONDS = 10.0
# By then every request of the client has been answered, or has timed out.
_LOST_SECONDS = 120.0

_HURRY_SECONDS = 0.05

# A broker forgets the offsets of a group without members once nothing was committed for
# `offsets.retention.minutes`, which is at least 1. A busy partition is committed more often.
RENEWED_SECONDS = 20.0

# Errors of a commit that was sent in one generation of the group and answered in the next.
# Partitions that are given up are committed before, within their generation.
_OVERTAKEN = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
}

Outcome: TypeAlias = Literal["ok", "failed", "overtaken"]
Committed: TypeAlias = Callable[[str, int, int], None]
"""Called for each offset that is committed: topic, partition, offset."""

Asked: TypeAlias = dict[tuple[str, int], tuple[Assigned, Commit]]


class _Question(NamedTuple):
    """A commit that shows whether the group has this member."""

    member: str
    sent: float
    topic: str


class Commits:
    """
    The commits that were requested and confirmed; used by the poll thread only.

    Idle partitions are committed again after `renewed` seconds: no group keeps them alive.
    """

    def __init__(
        self,
        client: Consumer,
        *,
        every: float,
        counted: Callable[[Outcome], None],
        report: Committed | None = None,
        renewed: float = math.inf,
        spans: "ConsumerSpans | None" = None,
    ) -> None:
        self._renewed, self._renewal = renewed, time.monotonic() + renewed
        self._client, self._every, self._counted, self._report = client, every, counted, report
        self._spans = spans
        self._span: Committing | None = None
        """The span of the commit that is not answered."""
        self._hurry = 0.0
        self._asked: Asked = {}
        self._next = self._deadline = 0.0
        self._limit = LIMIT
        """How much metadata the broker takes, as far as known."""
        self.taken = -math.inf
        """When the newest commit was sent that `ask` has sent, and that the group has taken."""
        self._unanswered = 0
        self._question: _Question | None = None
        self._refused: KafkaError | None = None
        self._refusals = 0
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the group has not taken what `ask` has sent; empty: it has, or may do so soon."""
        if self._question is not None:
            silent = time.monotonic() - self._question.sent
            if silent > _ANSWER_SECONDS:
                return f"the group has not answered a commit for {silent:.0f} s"
        return self._trouble

    @property
    def are_awaited(self) -> bool:
        """Whether somebody waits for them."""
        return self._report is not None

    def hurry(self) -> None:
        """Commit completed records within a moment; from any thread."""
        # For a moment, because the poll thread may not know of the record yet.
        self._hurry = time.monotonic() + _HURRY_SECONDS

    def tick(self, partitions: Iterable[Assigned]) -> None:
        """Request a commit, if one is due and the last was answered."""
        now = time.monotonic()
        if (now < self._next and now > self._hurry) or (self._asked and now < self._deadline):
            return
        self._next = now + self._every
        if now >= self._renewal:
            self._renewal = now + self._renewed
            partitions = list(partitions)
            for each in partitions:
                each.confirmed, each.changed = None, True
        asked = _asked(partitions, self._limit)
        if not asked:
            return
        self._asked, self._deadline = asked, now + _LONGEST_SECONDS
        self._end_span(TimeoutError())  # the commit before was never answered
        self._span = self._begin_span(asked)
        try:
            self._send(_offsets(asked))
        except KafkaException as error:
            self._failed(error.args[0])

    def ask(self, partitions: Iterable[Assigned]) -> bool:
        """
        Send a commit whose answer shows whether the group has this member, if none is on its way.

        Its coordinator takes a commit only from members of the present generation. Nobody waits
        here: while a thread waits in the client, no other one gets in. False: nothing was polled
        that could be committed.
        """
        now = time.monotonic()
        if self._question is not None and now - self._question.sent < _LOST_SECONDS:
            return True
        if not (places := list(self._places(partitions))):
            self._trouble = ""
            return False
        if self._question is not None:
            self._unanswered = 0
        # One topic may be refused, which we may not read, or which is gone. That says nothing of
        # the group, and another topic is tried next.
        place = places[self._refusals % len(places)]
        # Without an id, and if the group is empty, the coordinator might take it as a commit from
        # outside.
        question = _Question(self._client.memberid() or "", now, place.topic)
        self._question, self._refused = question, None
        try:
            self._send([place])
        except KafkaException as error:
            self._refuse(question, error.args[0])
        return True

    def _send(self, offsets: list[TopicPartition]) -> None:
        self._unanswered += 1
        try:
            self._client.commit(offsets=offsets, asynchronous=True)
        except KafkaException:
            self._unanswered -= 1
            raise

    def _hear(self, refused: KafkaError | None) -> None:
        """
        Take an answer for what `ask` has sent, once no other one can come.

        The client does not say which commit it answers. So all have to be answered, and taken.
        """
        self._unanswered = max(0, self._unanswered - 1)
        question = self._question
        if question is None:
            return
        self._refused = self._refused or refused
        if self._unanswered:
            return
        self._question = None
        if self._refused is not None:
            self._refuse(question, self._refused)
        elif question.member and self._client.memberid() == question.member:
            self.taken, self._trouble = question.sent, ""

    def _refuse(self, question: _Question, error: KafkaError) -> None:
        self._question, self._refusals = None, self._refusals + 1
        self._trouble = f"the group does not take a commit of {question.topic}: {error.str()}"
        _rarely.warning("%s", self._trouble)

    def _places(self, partitions: Iterable[Assigned]) -> Iterator[TopicPartition]:
        """Yield a possible commit of each topic: of its first partition that has one."""
        seen: set[str] = set()
        for assigned in partitions:
            topic, number = assigned.stretch.topic, assigned.stretch.partition
            if topic in seen or (commit := assigned.offsets.commit(self._limit)) is None:
                continue
            seen.add(topic)
            yield TopicPartition(topic, number, commit.offset, commit.metadata)

    def answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Take the broker's answer; the client calls this from within `poll`."""
        self._hear(error or next(filter(None, (each.error for each in partitions)), None))
        asked = self._asked
        if error is not None:
            self._failed(error)
            return
        failure: KafkaError | None = None
        for each in partitions:
            found = asked.pop((each.topic, each.partition), None)
            if found is None:
                continue
            assigned, commit = found
            if each.error is not None:
                failure, assigned.changed = each.error, True
            elif commit.offset == each.offset:
                self._confirm(assigned, commit)
            else:
                assigned.changed = True  # the answer was to `ask`
        if failure is not None:
            self._failed(failure)
        else:
            self._counted("ok")
            self._end_span()

    def _confirm(self, assigned: Assigned, commit: Commit) -> None:
        assigned.confirmed = commit
        if self._report is not None:
            self._report(assigned.stretch.topic, assigned.stretch.partition, commit.offset)

    def finally_(self, partitions: Iterable[Assigned], *, at_end: bool = False) -> None:
        """
        Commit completed records, and wait for the commit, because the partitions are given up.

        `at_end`: do not wait for ever. In a callback of the client, another thread could not
        commit.
        """
        partitions = list(partitions)
        for assigned in partitions:
            # An answer that is still to come no longer matters.
            self._asked.pop((assigned.stretch.topic, assigned.stretch.partition), None)
        limit = self._limit
        self._commit_and_wait(partitions, at_end=at_end)
        if self._limit < limit:
            self._commit_and_wait(partitions, at_end=at_end)

    def _commit_and_wait(self, partitions: list[Assigned], *, at_end: bool) -> None:
        for assigned in partitions:
            assigned.changed = True
        asked = _asked(partitions, self._limit)
        if not asked:
            return
        span = self._begin_span(asked)
        try:
            answers = (
                # While no coordinator answers, the client itself would wait for ever.
                within(_ANSWER_SECONDS, lambda: self._committed(asked))
                if at_end
                else self._committed(asked)
            )
        except KafkaException as error:
            _end(span, error.args[0])
            self._failed(error.args[0])
            return
        except TimeoutError as error:
            _end(span, error)
            self._counted("failed")
            _log.warning(
                "Kafka did not answer a last commit within %.0f s: records completed since the "
                "one before are handled again by the next owner of the partitions",
                _ANSWER_SECONDS,
            )
            return
        failures = [each.error for each in answers if each.error is not None]
        _end(span, failures[0] if failures else None)
        for failure in failures:
            self._failed(failure)
        if not failures:
            self._counted("ok")

    def _begin_span(self, asked: Asked) -> "Committing | None":
        if self._spans is None:
            return None
        return self._spans.committing(
            [(*place, commit.offset) for place, (_, commit) in asked.items()]
        )

    def _end_span(self, error: KafkaError | Exception | None = None) -> None:
        span, self._span = self._span, None
        _end(span, error)

    def _committed(self, asked: Asked) -> Sequence[TopicPartition]:
        return self._client.commit(offsets=_offsets(asked), asynchronous=False) or ()

    def _failed(self, error: KafkaError) -> None:
        self._end_span(error)
        if error.code() == KafkaError._NO_OFFSET:  # noqa: SLF001  # the client's name for it
            return
        for assigned, _ in self._asked.values():
            assigned.changed = True
        self._asked = {}
        if error.code() in _OVERTAKEN:
            self._counted("overtaken")
            _log.info("a rebalance has overtaken a commit; it is sent again: %s", error.str())
            return
        self._counted("failed")
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._do_without_metadata()
            return
        _log.warning("offsets could not be committed; the commit is tried again: %s", error.str())

    def _do_without_metadata(self) -> None:
        self._next = 0.0
        if self._limit:
            self._limit = 0
            _log.warning(
                "the broker does not take %d bytes of metadata with an offset: offsets are now "
                "committed without it, and a restart repeats records completed beyond the "
                "offset; set offset.metadata.max.bytes = %d at the brokers",
                LIMIT,
                LIMIT,
            )


def _end(span: "Committing | None", error: KafkaError | Exception | None) -> None:
    if span is not None:
        said = error.name() if isinstance(error, KafkaError) else type(error).__name__
        span.ended(None if error is None else said)


def _asked(partitions: Iterable[Assigned], limit: int) -> Asked:
    return {
        (assigned.stretch.topic, assigned.stretch.partition): (assigned, commit)
        for assigned in partitions
        if (commit := assigned.to_commit(limit)) is not None
    }


def _offsets(asked: Asked) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition, commit.offset, commit.metadata)
        for (topic, partition), (_, commit) in asked.items()
    ]
