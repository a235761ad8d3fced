"""An auditor without servers: a test commits its rows and publishes its records itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from dovecote.audit.auditor import Auditor
from dovecote.audit.parts import Outbox, Plan
from dovecote.audit.postgres import Chunk, Evidence, Window
from dovecote.audit.rules.ids import digest
from dovecote.audit.rules.matching import Raw, Read
from dovecote.audit.rules.promoted import Reach
from dovecote.audit.store import Store
from dovecote.observe.topics import Partition, Topic

WRITTEN = 1_700_000_000_000
"""When each row was written."""


def id_of(n: int) -> UUID:
    return UUID(int=(WRITTEN << 80) | (0x7000 << 64) | 1 << 63 | n)


def row(n: int, *, topic: str = "orders", key: bytes = b"k") -> Read:
    return (n, WRITTEN, topic, "/shop", id_of(n).bytes, digest(key, b"v"))


def record(
    n: int, *, offset: int | None = None, key: bytes = b"k", value: bytes = b"v", **more: bytes
) -> Raw:
    headers = {"ce_id": str(id_of(n)).encode(), "ce_source": b"/shop", **more}
    return (0, 0, n if offset is None else offset, WRITTEN, key, value, list(headers.items()))


def partition(number: int = 0, *, first: int | None = 0, end: int | None = 0) -> Partition:
    return Partition(number, 1, (1,), (1,), first, end)


def described(
    *partitions: Partition, id_: str | None = "first", config: Mapping[str, str] = {}
) -> dict[str, Topic]:
    return {"orders": Topic("orders", id_, partitions, config, ())}


@dataclass
class Apart:
    """An outbox and the topic `orders`, whose relay has passed every row that it is asked for."""

    rows: list[Read] = field(default_factory=list)
    """Rows that the auditor has not read."""
    records: list[Raw] = field(default_factory=list)
    """Records that the auditor has not read."""
    is_passed: bool = True
    """The relay has passed the rows."""
    topics: Mapping[str, Topic] = field(default_factory=lambda: described(partition()))
    parked: int = 0
    """So many of the first events are parked."""
    state: Path | None = None
    names: tuple[str, ...] = ("shop",)
    outbox: str = "shop"
    """The one of them that has the rows."""

    def __post_init__(self) -> None:
        outboxes = [
            Outbox(name=each, relay=each, dsn="", schema="outbox", retention=3600.0, kafka={})
            for each in self.names
        ]
        self.store = Store(self.state)
        plan = Plan(outboxes=tuple(outboxes), topics=("orders",), grace=0.001)
        self.auditor = Auditor(plan, self.store)
        self._put_servers(self.auditor.comparison)

    def _put_servers(self, comparison: Any) -> None:  # its servers are others
        self.comparison = comparison
        self.reader = SimpleNamespace(
            is_connected=True,
            read=self._read_rows,
            evidence=self._evidence,
            known_ids=lambda _: set(),
            parked=lambda after: ([], after),
            relays=lambda: ["shop"],
            identity=lambda: "id/1",
            is_behind=lambda _: False,
            reach=Reach,
            snapshot=lambda: "1:1:",
            has_successor=lambda *_: False,
            close=lambda: None,
        )
        topics = self.comparison.topics
        topics.read, topics.assign = self._read_records, lambda: None
        topics.describe = lambda _: self.topics
        topics.offsets_at = lambda *_: {}
        empty = SimpleNamespace(
            **{**vars(self.reader), "read": lambda *_: Chunk((), Window("1:1:"), complete=True)}
        )
        for index, name in enumerate(self.names):
            self.comparison.readers[index] = self.reader if name == self.outbox else empty
        self.require_same = comparison.sources.require_same
        comparison.sources.require_same = lambda _: None

    def _read_rows(self, _: Window, most: int, __: int | None) -> Chunk:
        taken, self.rows = self.rows[:most], self.rows[most:]
        return Chunk(taken, Window("1:1:"), complete=not self.rows)

    def _read_records(self, most: int, _: float) -> Sequence[Raw]:
        taken, self.records = self.records[:most], self.records[most:]
        for topic, number, offset, *_rest in taken:
            self.comparison.topics.positions[topic][number] = offset + 1
        return taken

    def _evidence(self, positions: Iterable[int]) -> dict[int, Evidence]:
        return {
            each: Evidence(
                there=True,
                passed=self.is_passed,
                parked=each < self.parked,
                id=str(id_of(each)),
                key=b"k",
                xid="1",
            )
            for each in positions
        }

    def read(self, times: int = 1) -> None:
        """Let the auditor read what there is."""
        for _ in range(times):
            self.comparison.step()

    def judge(self, times: int = 3) -> list[str]:
        """Let it judge all that it has read; return the kinds of all findings."""
        for _ in range(times):
            self.auditor._commit()
            self.auditor.judge.round(self.comparison.now())
        return [each["kind"] for each in self.store.findings()]
