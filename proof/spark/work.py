"""The records for a job, and the results that must come out: known before anything runs."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

Name: TypeAlias = Literal["dedup", "remember", "sessions"]
Fact: TypeAlias = tuple[object, ...]

PARTITIONS = 4
ANY = -1
"""The partition that Kafka's partitioner chooses."""
_KEYS = 40
_HOUR = 3_600_000


class Given(NamedTuple):
    """A record for the source topic."""

    partition: int
    key: str
    value: bytes
    id: str


class Work(Protocol):
    """A job's input and its results."""

    @property
    def command(self) -> tuple[str, ...]:
        """The job's program, and its first arguments."""
        ...

    @property
    def tables(self) -> str:
        """The job's own tables of settings."""
        ...

    def given(self, rows: int) -> Iterator[Given]:
        """Yield the next records."""
        ...

    def last(self) -> Iterator[Given]:
        """Yield the records after which every result is final."""
        ...

    def expected(self) -> Counter[Fact]:
        """Return the results of all records that were given."""
        ...

    def result(self, id_: str, value: bytes) -> Fact | None:
        """Return the result in a record of the output; None: it is only there to close others."""
        ...


@dataclass
class Dedup:
    """Events that pass a filter, each once; with `remembers`, each is given two or three times."""

    remembers: bool = False
    _next: int = 0
    _wanted: Counter[Fact] = field(default_factory=Counter)

    @property
    def command(self) -> tuple[str, ...]:
        return ("dedup_stream.py",)

    @property
    def tables(self) -> str:
        remember = 'remember = "1h"\n' if self.remembers else ""
        return (
            f'[operator]\ntype = "exact"\nfilter = "value.amount > 0"\n{remember}'
            '[output]\ntopic = "{name}.out"\nretry_topic = "{name}.retry"\n'
            'dead_letter_topic = "{name}.dead"\n'
        )

    def given(self, rows: int) -> Iterator[Given]:
        for number in range(self._next, self._next + rows):
            value = json.dumps({"order": number, "amount": number % 10}).encode()
            one = Given(
                number % PARTITIONS, f"k{number % (_KEYS * PARTITIONS)}", value, f"e{number}"
            )
            if number % 10:
                self._wanted[one.id, value] += 1
            yield from [one] * (2 + number % 2 if self.remembers else 1)
        self._next += rows

    def last(self) -> Iterator[Given]:
        return iter(())

    def expected(self) -> Counter[Fact]:
        return self._wanted

    def result(self, id_: str, value: bytes) -> Fact:
        return (id_, value)


@dataclass
class Sessions:
    """Clicks of many keys: each three that follow are a session, with a sum of its own."""

    _next: int = 0
    _clicks: int = 3
    _wanted: Counter[Fact] = field(default_factory=Counter)
    _begin: int = field(default_factory=lambda: time.time_ns() // 1_000_000 - 1_000 * _HOUR)

    @property
    def command(self) -> tuple[str, ...]:
        return ("stateful_stream.py", "sessions")

    @property
    def tables(self) -> str:
        return (
            '[operator]\ntype = "sessions"\ngap = "5s"\nclose_after = "off"\nmax_lag = "off"\n'
            'stream_time = "per_partition"\nevent_time = "at"\naggregate = "sum"\nfield = "n"\n'
            'forget_after = "off"\n'
            '[output]\ntopic = "{name}.out"\ndead_letter_topic = "{name}.dead"\n'
            'late_topic = "{name}.late"\n[state]\nbuckets = 4\n'
        )

    def given(self, rows: int) -> Iterator[Given]:
        """Yield whole sessions; each begins after the ones before it have ended."""
        for number in range(self._next, self._next + rows // self._clicks):
            partition = number % PARTITIONS
            key = f"p{partition}-k{number // PARTITIONS % _KEYS}"
            start = self._begin + number * 20
            times = [start + 100 * click for click in range(self._clicks)]
            # A key comes again after its gap: the other keys have moved the time on.
            round_ = number // PARTITIONS // _KEYS
            times = [at + round_ * 60_000 for at in times]
            values = [number * 10 + click for click in range(self._clicks)]
            self._wanted[key, times[0], times[-1], sum(values)] += 1
            for at, n in zip(times, values, strict=True):
                value = json.dumps({"at": at, "n": n}).encode()
                yield Given(partition, key, value, f"{number}-{n}")
        self._next += rows // self._clicks

    def last(self) -> Iterator[Given]:
        end = self._begin + 999 * _HOUR
        for partition in range(PARTITIONS):
            value = json.dumps({"at": end, "n": 0}).encode()
            yield Given(partition, f"end-{partition}", value, f"end-{partition}")

    def expected(self) -> Counter[Fact]:
        return self._wanted

    def result(self, id_: str, value: bytes) -> Fact | None:  # noqa: ARG002  # of the protocol
        found = json.loads(value)
        if str(found["key"]).startswith("end-"):
            return None
        return (found["key"], found["start"], found["end"], found["value"])


def work(name: Name) -> Work:
    """Return a job's work, from its beginning."""
    match name:
        case "dedup":
            return Dedup()
        case "remember":
            return Dedup(remembers=True)
        case "sessions":
            return Sessions()


class Verdict(NamedTuple):
    """The results compared with those that must be there."""

    wanted: int
    lost: int
    doubled: int
    wrong: int

    @property
    def is_well(self) -> bool:
        return self.wanted > 0 and not (self.lost or self.doubled or self.wrong)


def verdict(expected: Counter[Fact], seen: Counter[Fact]) -> Verdict:
    """Compare what was seen with what was expected: each result once, and no other."""
    return Verdict(
        wanted=expected.total(),
        lost=(expected - seen).total(),
        doubled=sum(n - expected[each] for each, n in seen.items() if 0 < expected[each] < n),
        wrong=sum(n for each, n in seen.items() if each not in expected),
    )
