"""Records of other programs do not stop the look back at what Kafka has."""

from typing import Any
from uuid import uuid4

from outbox.envelope import ID
from relay.kafka.looking_back import LookingBack
from relay.rules.reconciliation import Doubts


class Message:
    """A record; without headers to give, the name of one of them is not UTF-8."""

    def __init__(self, headers: list[tuple[str, bytes]] | None) -> None:
        self._headers = headers

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
