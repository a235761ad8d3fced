"""An event that does not fit its contract is not written, and its transaction goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dovecote.contracts.collecting import contracts_of
from dovecote.contracts.files import store
from outbox import Event, InvalidEvent, event, write
from outbox.contracts import enforce
from tests.support.written import Conn, stored


@event("OrderPlaced", topic="orders", key="id")
@dataclass
class OrderPlaced:
    id: str


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "contracts.json"
    store(path, contracts_of([__name__]))
    yield path
    enforce(path, "off")


def plain(value: object) -> Event:
    return Event(topic="orders", type="OrderPlaced", value=value)


def test_none_of_a_call_is_written_if_one_does_not_fit(conn: Conn, dsn: str, file: Path) -> None:
    enforce(file)
    with pytest.raises(InvalidEvent, match=r"value\.id: it must have type"):
        write(conn, OrderPlaced("1"), plain({"id": 2}))
    write(conn, OrderPlaced("3"), plain({"id": "4"}))
    conn.commit()
    assert stored(dsn) == [b'{"id":"3"}', b'{"id":"4"}']


def test_a_warning_writes_it(conn: Conn, dsn: str, file: Path) -> None:
    enforce(file, "warn")
    write(conn, plain({"id": 2}))
    conn.commit()
    assert stored(dsn) == [b'{"id":2}']
