"""After a gap nothing is certain until the group's coordinator has taken a commit."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from dedup.kafka.claiming import Claiming
from dedup.kafka.committing import Commits
from dedup.kafka.membership import Membership, patience
from dedup.rules.claim import Claim
from dedup.rules.lanes.assigned import Assigned, assigned
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.record import Record
from dedup.serving.certainty import Certainty
from tests.support.waiting import until

REFUSED = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)


@dataclass
class Coordinator:
    """Takes commits of its member, or of nobody; the answers come with `poll`."""

    member: str = "m-1"
    takes: bool = True
    asked: list[str] = field(default_factory=list)
    refuses: dict[str, int] = field(default_factory=dict)
    """Topics whose offsets it refuses, by the error."""
    unanswered: list[list[TopicPartition]] = field(default_factory=list)

    def __post_init__(self) -> None:
        client: Any = self
        self.commits = Commits(client, every=3_600, counted=lambda _: None)

    def memberid(self) -> str:
        return self.member

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.asked.append("commit")
        self.unanswered.append(offsets)

    def poll(self) -> None:
        """Answer all commits."""
        while self.unanswered:
            offsets = self.unanswered.pop(0)
            codes = [self.refuses[each.topic] for each in offsets if each.topic in self.refuses]
            error = None if self.takes else REFUSED
            self.commits.answered(KafkaError(codes[0]) if codes else error, offsets)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def membership(
    coordinator: Coordinator, certainty: Certainty | None = None, *, seconds: float | None = 10
) -> Membership:
    return Membership(coordinator.commits, certainty or Certainty(), patience=seconds)


def has(offset: int | None, topic: str = "t") -> Assigned:
    lanes = Lanes[Record]()
    return assigned(lanes.begin(topic, 0), Offsets(offset), max_skew=10)


def confirmed(coordinator: Coordinator, *partitions: Assigned) -> bool:
    """Ask until there is an answer for each topic; return whether one of them is a proof."""
    since, member = time.monotonic(), membership(coordinator)
    for _ in partitions:
        member._not_before = 0.0
        if member.confirmed(partitions, since):
            return True
        coordinator.poll()
    return bool(member.confirmed(partitions, since))


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
    assert certainty.until < time.monotonic()
    coordinator.poll()
    member.beat([has(5)])
    assert (certainty.until > time.monotonic()) is takes
    # It is not asked all the time.
    member.beat([has(5)])
    assert coordinator.asked == ["commit"]


def test_a_commit_that_was_sent_before_a_gap_is_no_proof_after_it(
    coordinator: Coordinator,
) -> None:
    certainty = Certainty(until=time.monotonic() - 1)
    member = membership(coordinator, certainty)
    member.beat([has(5)])
    coordinator.poll()
    coordinator.commits.taken -= 11
    member._not_before = 0.0
    member.beat([has(5)])
    assert certainty.until < time.monotonic()
    assert coordinator.asked == ["commit", "commit"]


def test_with_nothing_polled_it_is_certain(coordinator: Coordinator) -> None:
    certainty = Certainty(until=0)
    membership(coordinator, certainty).beat([has(None)])
    assert certainty.until > time.monotonic()


def test_who_shares_with_nobody_asks_nobody(coordinator: Coordinator) -> None:
    certainty = Certainty()
    membership(coordinator, certainty, seconds=None).beat([has(5)])
    assert certainty.until == float("inf")


def test_a_commit_is_no_answer_where_it_is_not_this_members(coordinator: Coordinator) -> None:
    assert confirmed(coordinator, has(5))
    member, since = membership(coordinator), time.monotonic()
    member.confirmed([has(5)], since)
    coordinator.member = "m-2"
    coordinator.poll()
    assert not member.confirmed([has(5)], since)
    coordinator.member = ""
    assert not confirmed(coordinator, has(5))


def test_a_silent_coordinator_keeps_nobody_waiting_and_is_asked_once(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dedup.kafka.committing._ANSWER_SECONDS", 0)
    since, member = time.monotonic(), membership(coordinator)
    for _ in range(3):
        member._not_before = 0.0
        assert member.confirmed([has(5)], since) is False
    assert coordinator.asked == ["commit"]
    assert "has not answered" in member.trouble
    coordinator.poll()
    assert member.confirmed([has(5)], since) is True
    assert member.trouble == ""


def test_an_answer_to_an_earlier_commit_is_no_proof(coordinator: Coordinator) -> None:
    each = has(5)
    each.confirmed, each.changed = None, True
    coordinator.commits.tick([each])
    since, member = time.monotonic(), membership(coordinator)
    member.confirmed([each], since)
    assert coordinator.asked == ["commit", "commit"]
    first, second = coordinator.unanswered
    coordinator.commits.answered(None, first)
    assert member.confirmed([each], since) is False
    coordinator.commits.answered(REFUSED, second)
    assert member.confirmed([each], since) is False
    assert "does not take a commit of t" in member.trouble


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


def claimed(claiming: Claiming, partition: Assigned, coordinator: Coordinator) -> None:
    def is_claimed() -> bool:
        coordinator.poll()
        return partition.stretch in claiming.claimed([partition])

    until(is_claimed, within=10, what="a claim")


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
        claimed(claiming, partition, coordinator)
        assert coordinator.asked == ["commit", "claim"] * away + ["commit", "claim", "commit"]
        assert claim.number == 1

        # A refused claim is made again, once.
        claim.refused = 1
        claimed(claiming, partition, coordinator)
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

        def is_asked_twice() -> bool:
            coordinator.poll()
            return not claiming.claimed([partition]) and len(coordinator.asked) > 1

        until(is_asked_twice, within=10, what="two questions")
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
    coordinator.refuses = {"gone": code}
    assert confirmed(coordinator, has(5, "gone"), has(7, "gone"), has(5)) is True
    assert coordinator.asked == ["commit", "commit"]
    coordinator.takes = False
    assert confirmed(coordinator, has(5, "gone"), has(5)) is False


def test_a_refusal_for_the_topic_alone_is_no_proof_and_the_reason_is_known(
    coordinator: Coordinator,
) -> None:
    coordinator.refuses = {"gone": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert confirmed(coordinator, has(5, "gone"), has(None)) is False
    said = coordinator.commits.trouble
    assert said.startswith("the group does not take a commit of gone: ")
    assert confirmed(coordinator, has(5)) is True
    assert coordinator.commits.trouble == ""


def test_why_nothing_can_be_claimed_is_known_until_it_is_claimed(coordinator: Coordinator) -> None:
    partition = has(5)
    partition.stretch.claim = Claim()
    with ThreadPoolExecutor(1) as threads:
        claiming = Claiming(
            Inbox(coordinator, away=1),
            membership(coordinator),
            threads=threads,
            refused=lambda: None,
        )
        claiming.want([partition.stretch])

        def is_barred() -> bool:
            coordinator.poll()
            return not claiming.claimed([partition]) and partition.stretch.barred != ""

        until(is_barred, within=10, what="that it cannot be claimed")
        assert partition.stretch.barred == "it cannot be claimed in the inbox: away"
        claimed(claiming, partition, coordinator)
    Lanes[Record]().open(partition.stretch)
    assert partition.stretch.barred == ""
