"""Records of other programs do not stop the look back at what Kafka has."""

from typing import Any
from uuid import uuid4

import pytest

from outbox.envelope import ID
from relay.kafka.looking_back import LookingBack
from relay.rules.reconciliation import Doubts


class Message:
    """A record; without headers to give, the name of one of them is not UTF-8."""

    def __init__(self, headers: list[tuple[str, bytes]] | None, timestamp: int = 0) -> None:
        self._headers, self._timestamp = headers, timestamp

    def headers(self) -> list[tuple[str, bytes]]:
        if self._headers is None:
            msg = "error return without exception set"
            raise SystemError(msg)
        return self._headers

    def set_headers(self, headers: list[tuple[str, bytes]]) -> None:
        self._headers = headers

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return 0

    def key(self) -> bytes:
        return b"k"

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp


def test_a_record_whose_headers_cannot_be_read_belongs_to_no_event() -> None:
    id_ = uuid4()
    looking = LookingBack({}, start=0, since=0, timeout=1)
    looking._doubts = Doubts({"orders": {id_.bytes: b"k"}})
    looking._next = {("orders", 0): 0}

    for headers in (None, [(ID, str(id_).encode())]):
        message: Any = Message(headers)
        looking._take(("orders", 0), message)

    assert looking.found == {"orders": {id_.bytes}}
    assert looking.strangers == []


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000])
def test_an_older_record_is_not_missed_whatever_the_unit_of_its_timestamp(unit: int) -> None:
    since = 1_700_000_000_000
    looking = LookingBack({}, start=0, since=since, timeout=1)
    looking._next = {("orders", 0): 0}

    for at in (since - 1, since):
        message: Any = Message([(ID, str(uuid4()).encode())], at * unit)
        looking._take(("orders", 0), message)

    assert [each.at for each in looking.strangers] == [since]
