"""Silence of a slow broker is not taken for a batch that the client cannot read."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from dedup.rules.unread import Place
from dedup.unread import probing
from outbox.errors import DovecoteError

PLACE = Place("orders", 0, 42)
END = 100
BATCH = range(40, 50)


class Message:
    def __init__(self, error: int) -> None:
        self._error = KafkaError(error)

    def topic(self) -> str:
        return PLACE.topic

    def error(self) -> KafkaError:
        return self._error


class Client:
    """Says nothing of the offsets in `silent`, and that the end is reached at all others."""

    silent: Any = BATCH

    def __init__(self, _config: Any, **_: Any) -> None:
        self._at = 0

    def close(self) -> None:
        """Do nothing."""

    def get_watermark_offsets(self, *_: Any) -> tuple[int, int]:
        return 0, END

    def assign(self, places: list[TopicPartition]) -> None:
        self._at = places[0].offset

    def poll(self, _seconds: float) -> Message | None:
        return None if self._at in self.silent else Message(KafkaError._PARTITION_EOF)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    made = type("Made", (Client,), {})
    monkeypatch.setattr(probing, "Consumer", made)
    monkeypatch.setattr(probing, "_SECONDS", 0.01)
    return made


@pytest.mark.usefixtures("client")
def test_offsets_of_which_the_client_says_nothing_cannot_be_read() -> None:
    assert probing.unread({}, PLACE) == ("nothing comes for 0.01 s", 42, 50)


def test_a_broker_that_sends_nothing_at_all_lets_nothing_be_stepped_over(
    client: type[Client],
) -> None:
    client.silent = range(END + 1)  # as a quota does for a while
    with pytest.raises(DovecoteError, match=r"orders/0.*sends nothing") as failed:
        probing.unread({}, PLACE)
    assert not isinstance(failed.value, probing.Readable)
