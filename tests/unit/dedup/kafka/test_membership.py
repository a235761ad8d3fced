"""After a gap nothing is certain until the group's coordinator has taken a commit."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dedup.kafka.claiming import Claiming
from dedup.kafka.membership import Membership, patience
from dedup.rules.claim import Claim
from dedup.rules.lanes.assigned import Assigned, assigned
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.record import Record
from dedup.serving.certainty import Certainty
from tests.support.waiting import until

REFUSED = KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))


@dataclass
class Coordinator:
    """Takes commits of its member, or of nobody, in the form of a client's request."""

    member: str = "m-1"
    takes: bool = True
    asked: list[str] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    refuses: dict[str, int] = field(default_factory=dict)
    """Topics whose offsets it refuses, by the error."""

    def memberid(self) -> str:
        return self.member

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        self.asked.append("commit")
        self.meanwhile()
        if (code := self.refuses.get(offsets[0].topic)) is not None:
            raise KafkaException(KafkaError(code))
        if not self.takes:
            raise REFUSED
        return offsets


class Finds:
    """Finds the first partition of each topic that has an offset."""

    def places(self, partitions: Iterable[Assigned]) -> list[TopicPartition]:
        found: dict[str, TopicPartition] = {}
        for each in partitions:
            topic, offset = each.stretch.topic, each.offsets.position
            if offset is not None and topic not in found:
                found[topic] = TopicPartition(topic, each.stretch.partition, offset)
        return [*found.values()]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def membership(
    coordinator: Any, certainty: Certainty | None = None, *, seconds: float | None = 10
) -> Membership:
    return Membership(coordinator, Finds(), certainty or Certainty(), patience=seconds)


def has(offset: int | None, topic: str = "t") -> Assigned:
    lanes = Lanes[Record]()
    return assigned(lanes.begin(topic, 0), Offsets(offset), max_skew=10)


def test_it_is_certain_while_the_poll_thread_comes_by(coordinator: Coordinator) -> None:
    certainty = Certainty()
    member = membership(coordinator, certainty)
    for _ in range(3):
        before = time.monotonic()
        member.beat([has(5)])
        assert before + 10 <= certainty.until <= time.monotonic() + 10
    assert coordinator.asked == []


@pytest.mark.parametrize("takes", [True, False])
def test_behind_a_gap_it_is_certain_once_a_commit_was_taken(
    coordinator: Coordinator, *, takes: bool
) -> None:
    coordinator.takes = takes
    certainty = Certainty(until=time.monotonic() - 1)
    member = membership(coordinator, certainty)
    member.beat([has(5)])
    assert (certainty.until > time.monotonic()) is takes
    # It is not asked all the time.
    member.beat([has(5)])
    assert coordinator.asked == ["commit"]


def test_with_nothing_polled_it_is_certain(coordinator: Coordinator) -> None:
    certainty = Certainty(until=0)
    membership(coordinator, certainty).beat([has(None)])
    assert certainty.until > time.monotonic()


def test_who_shares_with_nobody_asks_nobody(coordinator: Coordinator) -> None:
    certainty = Certainty()
    membership(coordinator, certainty, seconds=None).beat([has(5)])
    assert certainty.until == float("inf")


def test_a_commit_is_no_answer_where_it_is_not_this_members(coordinator: Coordinator) -> None:
    member = membership(coordinator)
    assert member.confirmed([has(5)])
    coordinator.meanwhile = lambda: setattr(coordinator, "member", "m-2")
    assert not member.confirmed([has(5)])
    coordinator.member = ""
    assert not member.confirmed([has(5)])


def test_a_gap_may_be_half_a_session() -> None:
    assert patience({"session.timeout.ms": "6000"}) == 3
    assert patience({"session.timeout.ms": "0x1770"}) == 3
    assert patience({}) == 22.5


@dataclass
class Inbox:
    """Numbers claims."""

    coordinator: Coordinator
    away: int = 0
    number: int = 0

    def claim(self, partitions: Iterable[tuple[str, int]]) -> list[int]:
        self.coordinator.asked.append("claim")
        if self.away:
            self.away -= 1
            msg = "away"
            raise OSError(msg)
        self.number += 1
        return [self.number for _ in partitions]


def claimed(claiming: Claiming, partition: Assigned) -> None:
    until(
        lambda: partition.stretch in claiming.claimed([partition]),
        within=10,
        what="a claim",
    )


@pytest.mark.parametrize("away", [0, 1])
def test_a_claim_is_between_two_answers_of_the_group(coordinator: Coordinator, away: int) -> None:
    partition, refusals = has(5), list[None]()
    claim = partition.stretch.claim = Claim()
    with ThreadPoolExecutor(1) as threads:
        claiming = Claiming(
            Inbox(coordinator, away),
            membership(coordinator),
            threads=threads,
            refused=lambda: refusals.append(None),
        )
        claiming.want([partition.stretch])
        claimed(claiming, partition)
        assert coordinator.asked == ["commit", "claim"] * away + ["commit", "claim", "commit"]
        assert claim.number == 1

        # A refused claim is made again, once.
        claim.refused = 1
        claimed(claiming, partition)
        assert (claim.number, len(refusals)) == (2, 1)


def test_who_is_no_member_any_more_takes_no_claim_from_others(coordinator: Coordinator) -> None:
    coordinator.takes = False
    partition = has(5)
    partition.stretch.claim = Claim()
    with ThreadPoolExecutor(1) as threads:
        claiming = Claiming(
            Inbox(coordinator),
            membership(coordinator),
            threads=threads,
            refused=lambda: None,
        )
        claiming.want([partition.stretch])
        until(
            lambda: not claiming.claimed([partition]) and len(coordinator.asked) > 1,
            within=10,
            what="two questions",
        )
    assert set(coordinator.asked) == {"commit"}


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
    ],
)
def test_a_topic_whose_offsets_are_refused_does_not_stop_the_others(
    coordinator: Coordinator, code: int
) -> None:
    member = membership(coordinator)
    coordinator.refuses = {"gone": code}
    assert member.confirmed([has(5, "gone"), has(7, "gone"), has(5)]) is True
    assert coordinator.asked == ["commit", "commit"]
    coordinator.takes = False
    assert member.confirmed([has(5, "gone"), has(5)]) is False


def test_a_refusal_for_the_topic_alone_is_no_proof(coordinator: Coordinator) -> None:
    coordinator.refuses = {"gone": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert membership(coordinator).confirmed([has(5, "gone"), has(None)]) is False
