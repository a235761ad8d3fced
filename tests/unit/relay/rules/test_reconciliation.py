"""The events that Kafka has, those that it lacks, and those that the database has lost."""

from uuid import UUID, uuid5

from relay.rules.reconciliation import Account, Doubts, Sent, account

NAMES = UUID(int=7)


def id_of(name: str) -> str:
    return str(uuid5(NAMES, name))


def in_doubt(*names: str, parked: str = "", key: bytes | None = b"k") -> Doubts:
    """Return events in doubt, of which some are parked and hold their key."""
    doubts = Doubts()
    for name in names:
        doubts.add("orders", id_of(name), key)
    for name in parked:
        doubts.add_parked("orders", id_of(name), key, holds=key is not None)
    return doubts


def compared(doubts: Doubts, there: str, *, compacted: bool = False) -> Account:
    on_kafka = {"orders": {UUID(id_of(name)).bytes for name in there}}
    return account(doubts, on_kafka, [], compacted={"orders"} if compacted else ())


def test_each_event_in_doubt_is_published_already_or_still_to_be() -> None:
    found = compared(in_doubt("a", "b", "c"), "b")
    assert (found.published_already, found.to_publish) == (1, 2)
    assert found.published["orders"] == {UUID(id_of("b")).bytes}


def test_a_copy_in_another_topic_says_nothing() -> None:
    doubts = in_doubt("a")
    found = account(doubts, {"copies": {UUID(id_of("a")).bytes}}, [])
    assert (found.published_already, found.to_publish) == (0, 1)


def test_what_is_parked_and_on_kafka_was_requeued() -> None:
    found = compared(in_doubt("b", parked="pq"), "p")
    assert found.requeued == {UUID(id_of("p")).bytes}
    assert found.published_already == 1


def test_what_comes_behind_a_parked_event_of_its_key_is_not_published() -> None:
    found = compared(in_doubt("b", parked="p"), "")
    assert (found.to_publish, len(found.waiting)) == (0, 1)
    freed = compared(in_doubt("b", parked="p"), "p")
    assert (freed.to_publish, len(freed.waiting)) == (1, 0)
    without_key = compared(in_doubt("b", parked="p", key=None), "")
    assert (without_key.to_publish, len(without_key.waiting)) == (1, 0)


def test_what_is_parked_and_read_again_counts_once() -> None:
    found = compared(in_doubt("p", "b", parked="p"), "")
    assert (found.published_already, found.to_publish, len(found.waiting)) == (0, 0, 2)
    there = compared(in_doubt("p", "b", parked="p"), "pb")
    assert (there.published_already, there.to_publish) == (2, 0)


def test_in_a_compacted_topic_a_later_event_of_the_key_tells_of_the_earlier_ones() -> None:
    assert compared(in_doubt("a", "b", "c"), "b", compacted=True).to_publish == 1
    assert compared(in_doubt("a", "b", "c"), "b").to_publish == 2


def test_what_is_of_no_event_is_missing() -> None:
    sent = Sent(id_of("x"), "orders", None, 5)
    assert account(in_doubt("a"), {}, [sent]).missing == [sent]
