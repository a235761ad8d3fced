"""The evidence as values: rows of the service's log, and Kafka's records."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One event of a committed transaction, as the service logged it."""

    row: str
    id: str
    type: str
    flight: str
    number: int
    """Rises by one with each event of the flight."""


@dataclass(frozen=True)
class Record:
    """A record of Kafka, as any consumer sees it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: bytes
    headers: Mapping[str, str]

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The value, which is a JSON object."""
        found = json.loads(self.value)
        if not isinstance(found, dict):
            msg = f"the value of {self.place} is not a JSON object"
            raise TypeError(msg)
        return found

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def id(self) -> str:
        return self.headers.get("ce_id", "")

    @property
    def type(self) -> str:
        return self.headers.get("ce_type", "")

    @property
    def round(self) -> int:
        """Number of times that the event was put on the retry topic before."""
        return int(self.headers.get("dovecote_round", "0"))

    @property
    def attempt(self) -> int:
        return int(self.headers.get("dovecote_attempt", "1"))

    @property
    def at(self) -> int:
        """When the event happened, in milliseconds."""
        return int(datetime.fromisoformat(self.headers["ce_time"]).timestamp() * 1000)
