"""
Put the records of many keys into their sessions at once, by columns.

NumPy groups the records by key and session, and finds which record closes which session. So Python
works once for each key and session, and not for each record. The results are those that the
operator has when it takes one record after the other, in their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from spark_jobs.operators.alarms import Ident
from spark_jobs.operators.sessions.aggregates import ODD, Fold
from spark_jobs.operators.sessions.keys import Open, SessionsOfKey
from spark_jobs.operators.step import Closed, Inputs

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_MOST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules by which records share a session, and it closes; in milliseconds."""

    gap: int
    open_for: int
    """The gap and the grace."""
    fold: Fold


@dataclass(slots=True)
class TakenColumns:
    """The results of taking records."""

    closed: Closed
    """The sessions that they closed, in their order."""
    closers: Sequence[int]
    """The number of the record that closed each."""
    begun: list[bytes]
    """The keys that had no open session before."""
    odd: Sequence[int] = field(default_factory=list)
    """The numbers of the records that were not taken, since their keys need a closer look."""


def take(
    held: dict[Ident, SessionsOfKey], records: Inputs, now: int, rules: Rules
) -> TakenColumns | None:
    """
    Take the records of keys with clocks of their own; None: not one of them can be taken so.

    A key is left out, with all its records, if one of them is late or its value is odd.
    """
    times = np.fromiter(records.times, np.int64, len(records))
    if not times.size or (times[1:] < times[:-1]).any():
        return None
    groups = _Groups(records.keys, times)
    if groups.span * (len(groups.keys) + 1) > _MOST:
        return None
    found = []
    for key, time in zip(groups.keys, groups.first_times, strict=True):
        of_key = held.get(key)
        if of_key is None:
            of_key = held[key] = SessionsOfKey(time, now)
        found.append(of_key)
    sessions = _Sessions(groups, found, rules)
    order = groups.order.tolist()
    values = list(itemgetter(*order)(records.values)) if len(order) > 1 else records.values
    made = rules.fold(values, *sessions.bounds(), sessions.joined)
    odd = [
        rank
        for rank, (of_key, time) in enumerate(zip(found, groups.first_times, strict=True))
        if _is_odd(of_key, time)
    ]
    if ODD in made:
        odd += [sessions.rank_of(number) for number, value in enumerate(made) if value is ODD]
    if odd:
        left, plain = groups.parted(odd)
        taken = take(held, records.at(plain), now, rules)
        if taken is not None:
            taken.closers, taken.odd = [plain[each] for each in taken.closers], left
        return taken
    return sessions.settle(made, now)


def _is_odd(held: SessionsOfKey, time: int) -> bool:
    """Return whether a record at `time` is late, or comes into an earlier session of its key."""
    if time < held.clock or time < held.floor:
        return True
    open_ = held.open
    return bool(open_) and (time < open_[-1].end or open_[0].end < held.floor)


class _Groups:
    """Records in the order of their keys; those of a key stay in theirs."""

    def __init__(self, keys: Sequence[bytes], times: Array) -> None:
        count = len(keys)
        first: dict[bytes, int] = {}
        # The number of the first record of its key stands for a key.
        numbers = np.fromiter(map(first.setdefault, keys, range(count)), np.int64, count)
        self.keys: list[bytes] = list(first)
        """In the order of their first records; their places here are their ranks."""
        self.order: Array = np.argsort(numbers, kind="stable")
        self.times: Array = times[self.order]
        self.is_first: Array = np.ones(count, bool)
        ordered = numbers[self.order]
        self.is_first[1:] = ordered[1:] != ordered[:-1]
        self.begins: Array = np.flatnonzero(self.is_first)
        self.ends: Array = np.append(self.begins[1:], count)
        self.ranks: Array = np.cumsum(self.is_first) - 1
        self.first_times: list[int] = self.times[self.begins].tolist()
        self._least = int(times[0])
        self.span = int(times[-1]) - self._least + 2
        self._line = self.ranks * self.span + (self.times - self._least)

    def parted(self, ranks: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the numbers of the records of these keys, and those of all others, in order."""
        is_theirs = np.isin(self.ranks, ranks)
        theirs, others = np.sort(self.order[is_theirs]), np.sort(self.order[~is_theirs])
        return theirs.tolist(), others.tolist()

    def after(self, ranks: Array, moments: Array) -> Array:
        """Return the place of the first record of each key after a moment; -1: there is none."""
        within = np.clip(moments - self._least, -1, self.span - 1)
        places = np.searchsorted(self._line, ranks * self.span + within, side="right")
        return np.where(places < self.ends[ranks], places, -1)


class _Sessions:
    """The sessions of all keys: those that were open, and those of the records."""

    def __init__(self, groups: _Groups, held: Sequence[SessionsOfKey], rules: Rules) -> None:
        self._groups, self._held, self._rules = groups, held, rules
        is_new = groups.is_first.copy()
        is_new[1:] |= np.diff(groups.times) > rules.gap
        self._begins = np.flatnonzero(is_new)
        self._ends = np.append(self._begins[1:], len(is_new))
        self._ranks = groups.ranks[self._begins]
        first_of = np.searchsorted(self._begins, groups.begins).tolist()
        self.joined: dict[int, Any] = {}
        """The values of open sessions that go on, by the number of the session."""
        self._going_on: dict[int, Open] = {}
        self._before: list[tuple[int, Open]] = []
        """The sessions that do not go on, with the ranks of their keys."""
        gap = rules.gap
        for rank, of_key in enumerate(held):
            if open_ := of_key.open:
                last = open_[-1]
                if groups.first_times[rank] <= last.end + gap:
                    self._going_on[first_of[rank]] = last
                    self.joined[first_of[rank]] = last.value
                    self._before += [(rank, each) for each in open_[:-1]]
                else:
                    self._before += [(rank, each) for each in open_]

    def bounds(self) -> tuple[list[int], list[int]]:
        """Return where the records of each session begin and end, among those by key."""
        return self._begins.tolist(), self._ends.tolist()

    def rank_of(self, number: int) -> int:
        return int(self._ranks[number])

    def settle(self, values: list[Any], now: int) -> TakenColumns:
        """Close sessions, and leave the others open; `values` are those of the records'."""
        groups, before = self._groups, self._before
        starts = groups.times[self._begins]
        revisions = self._ends - self._begins
        for number, session in self._going_on.items():
            starts[number] = session.start
            revisions[number] += session.revision
        of_old = np.array([rank for rank, _ in before], np.int64)
        old = [(each.start, each.end, each.revision) for _, each in before]
        numbers = np.array(old, np.int64).reshape(len(old), 3)
        ranks = np.concatenate([of_old, self._ranks])
        starts = np.concatenate([numbers[:, 0], starts])
        ends = np.concatenate([numbers[:, 1], groups.times[self._ends - 1]])
        revisions = np.concatenate([numbers[:, 2], revisions])
        values = [*(each.value for _, each in before), *values]
        begun = [key for key, of in zip(groups.keys, self._held, strict=True) if not of.open]
        closers = groups.after(ranks, ends + self._rules.open_for)
        columns = ranks, starts, ends, revisions
        self._leave_open(np.flatnonzero(closers < 0), columns, values, now)
        done = np.flatnonzero(closers >= 0)
        rows = groups.order[closers[done]]
        # Sessions that one record closes are of one key, and stay in the order of their ends.
        in_order = np.argsort(rows, kind="stable")
        done = done[in_order]
        return TakenColumns(
            Closed(
                [groups.keys[each] for each in ranks[done].tolist()],
                starts[done].tolist(),
                ends[done].tolist(),
                [values[each] for each in done.tolist()],
                revisions[done].tolist(),
            ),
            rows[in_order].tolist(),
            begun,
        )

    def _leave_open(
        self, places: Array, columns: Sequence[Array], values: Sequence[Any], now: int
    ) -> None:
        """Leave the sessions at `places` open, and no others."""
        last_times = self._groups.times[self._groups.ends - 1].tolist()
        for of_key, time in zip(self._held, last_times, strict=True):
            of_key.clock, of_key.arrived, of_key.open = time, now, []
        rows = zip(*(each[places].tolist() for each in columns), places.tolist(), strict=True)
        for rank, start, end, revision, place in rows:
            self._held[rank].open.append(Open(start, end, values[place], revision))
