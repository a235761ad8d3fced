import pytest

from dedup.rules.identity import Identity
from dedup.rules.policies import decode
from dedup.rules.policies.decode import Undecodable
from dedup.rules.record import Record, read_with
from outbox import Event, envelope


def record(value: bytes | None = b'{"order": 42}') -> Record:
    event = Event(topic="orders", key="order-42", type="OrderPlaced", value=value, id="e-1")
    key, body, headers = envelope.encode(event)
    return Record("orders", 2, 7, 1_700_000_000_000, key, body, headers)


def test_a_record_tells_the_event_in_it() -> None:
    event = record().event
    assert (event.id, event.key, event.value) == ("e-1", "order-42", {"order": 42})


def test_the_event_is_decoded_once_and_only_when_asked_for() -> None:
    decoded = []

    def count(given: envelope.Record) -> Event:
        decoded.append(given.offset)
        return decode.as_raw(given)

    one = read_with(count)(*record())
    assert decoded == []
    assert one.event is one.event
    assert decoded == [7]
    assert one.event.value == b'{"order": 42}'


def test_what_cannot_be_read_says_so_and_has_an_identity_all_the_same() -> None:
    unreadable = record(b"{")
    with pytest.raises(Undecodable, match="orders/2/7"):
        _ = unreadable.event
    assert unreadable.identity == Identity("dovecote", "e-1")


def test_a_record_cannot_be_changed_and_equals_what_the_envelope_knows() -> None:
    with pytest.raises(AttributeError):
        record().offset = 8  # type: ignore[misc]  # what is shown
    one = record()
    assert one == envelope.Record(*one)
    assert one.place == "orders/2/7"
