"""A consumer of which something cannot be read is said so, and its records wait."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dovecote.audit import following
from dovecote.audit.following import Following
from dovecote.audit.parts import Follower
from dovecote.audit.rules.matching import Raw
from dovecote.audit.store import Store
from dovecote.observe.topics import Partition, Topic
from tests.support.audited_apart import id_of, partition, record

FOLLOWER = Follower(
    name="shipping",
    group="shipping",
    topics=("orders",),
    retries=(),
    dead="dead",
    dsn="",
    schema="inbox",
    kafka={},
)


class Cluster:
    """The topics `orders` and `dead`, as far as one client has read them."""

    def __init__(self, orders: Sequence[Raw], dead: Sequence[Raw]) -> None:
        self.of = {"orders": orders, "dead": dead}
        self.ends = {name: partition(end=len(each)) for name, each in self.of.items()}
        self.refused: set[str] = set()
        self.hidden: set[str] = set()
        self.committed = len(orders)
        self.polls = 0

    def client(self) -> Any:  # it stands for a class of a library
        made = SimpleNamespace(names=[], positions={}, trouble="", assign=lambda: None)
        made.describe = lambda names: self._described(made, names)
        made.committed = lambda *_: {0: self.committed}
        made.read = lambda *_: self._read(made)
        made.close = lambda: None
        return made

    def _described(self, made: Any, names: Sequence[str]) -> dict[str, Topic]:
        made.hidden = [name for name in names if name in self.hidden]
        return {
            name: Topic(name, "first", [self.ends[name]], {}, ())
            for name in names
            if name not in self.hidden
        }

    def _read(self, made: Any) -> list[Raw]:
        self.polls += 1
        found: list[Raw] = []
        for number, places in made.positions.items():
            name = made.names[number]
            if name in self.refused:
                made.trouble = "Broker: Topic authorization failed"
                continue
            new = self.of[name][places[0] :]
            found += [(number, 0, places[0] + n, *each[3:]) for n, each in enumerate(new)]
            places[0] += len(new)
        return found


def followed(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Following:
    """Follow the consumer; its inbox has the event 0, which its group has handled first."""
    made = Following(FOLLOWER, Store(None), None, 0.0)
    monkeypatch.setattr(following, "wall", lambda: 0)
    monkeypatch.setattr(made, "_topics", cluster.client())
    monkeypatch.setattr(made, "_aside", cluster.client())
    monkeypatch.setattr(made, "_handled", lambda _: {(f"{id_of(0)}@/shop", 0)})
    return made


def test_a_record_whose_dead_letter_cannot_be_read_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster([record(0), record(1), record(2)], [record(1)])
    cluster.refused = {"dead"}
    made = followed(monkeypatch, cluster)
    assert made.look(1) == []
    assert made.trouble == (
        "consumer/shipping: dead/0 cannot be read to 1: Broker: Topic authorization failed"
    )
    cluster.refused = set()
    assert [each.id for each in made.look(100_000)] == [str(id_of(2))]
    assert made.trouble == ""


@pytest.mark.parametrize("of", ["dead", "orders"])
def test_a_partition_without_a_leader_is_said_and_its_records_wait(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    cluster = Cluster([record(0), record(1)], [record(1)])
    known, cluster.ends[of] = cluster.ends[of], Partition(0, None, (), (), None, None)
    made = followed(monkeypatch, cluster)
    assert made.look(1) == []
    assert f"{of}/0 cannot be read" in made.trouble
    cluster.ends[of] = known
    assert made.look(100_000) == []
    assert made.trouble == ""


def test_offsets_that_a_group_passed_and_nobody_can_read_are_said_and_asked_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster([record(0), record(1)], [record(1)])
    cluster.committed = 10
    made = followed(monkeypatch, cluster)
    assert made.look(1) == []
    assert "orders/0 cannot be read to 10" in made.trouble
    polls = cluster.polls
    assert (made.look(2), cluster.polls, made.is_behind) == ([], polls, False)
    assert made.counts["passed"] == made.counts["handled"] == 2


@pytest.mark.parametrize("of", ["dead", "orders"])
def test_a_topic_that_kafka_does_not_let_us_see_is_said_and_its_records_wait(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    cluster = Cluster([record(0), record(1)], [record(1)])
    cluster.hidden = {of}
    made = followed(monkeypatch, cluster)
    assert made.look(1) == []
    assert made.trouble == (
        f"consumer/shipping: topic {of!r} cannot be read: grant `Describe` on it"
    )
    cluster.hidden = set()
    assert made.look(100_000) == []
    assert (made.trouble, made.counts["passed"], made.counts["unhandled"]) == ("", 2, 0)
