"""Compare the printed figures of ours with those of the peers: pure functions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeAlias

MEASURED, MISSING, FAILED = "peers", "peers_missing", "peers_failed"
RATIO, FAULT = "peers_ratio", "peers_fault"
_FAULTS = ("lost", "repeated", "disordered", "wrong")
_UNORDERED = "no order"

Line: TypeAlias = Mapping[str, Any]
"""One printed measurement."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One measurement of one contender."""

    per_s: float
    """Records a second."""

    cpu_us: float
    """Microseconds of processor time of its own processes for a record."""

    lost: int = 0
    repeated: int = 0
    disordered: int = 0
    """Records that came after a later one of their key."""

    wrong: int = 0
    """Results that differ from those of a model."""

    peak_mb: int | None = None
    closing_s: float | None = None
    """From the last record that counts to the last commit, for those whose clock ends before."""

    def fields(self) -> dict[str, float]:
        """Return the figures that are known, rounded."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {**known, "per_s": round(self.per_s), "cpu_us": round(self.cpu_us, 2)}


def parsed(text: str) -> Line | None:
    """Return a printed line as a measurement; None if it is none."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "bench" in line else None


def ratios(lines: Sequence[Line]) -> Iterator[Mapping[str, object]]:
    """
    Yield the comparison of each of ours with each peer, for each kind of work.

    `rate` and `cpu` are ours divided by the peer's, of the medians: a rate above 1 says that ours
    is faster, and a `cpu` below 1 that it costs less.
    """
    found: dict[tuple[str, bool, str], list[Line]] = {}
    for line in lines:
        if line["bench"] == MEASURED:
            place = (line["work"], line["ours"], line["name"])
            found.setdefault(place, []).append(line)
    for (work, ours, name), mine in found.items():
        for (peer_work, is_ours, peer), theirs in found.items():
            if ours and not is_ours and work == peer_work:
                yield {
                    "work": work,
                    "ours": name,
                    "peer": peer,
                    "rate": _ratio(mine, theirs, "per_s"),
                    "cpu": _ratio(mine, theirs, "cpu_us"),
                    "ours_per_s": round(_median(mine, "per_s")),
                    "peer_per_s": round(_median(theirs, "per_s")),
                    "ours_cpu_us": round(_median(mine, "cpu_us"), 2),
                    "peer_cpu_us": round(_median(theirs, "cpu_us"), 2),
                    "rounds": min(len(mine), len(theirs)),
                }


def faults(lines: Sequence[Line]) -> Iterator[Mapping[str, object]]:
    """
    Yield what each contender lost, repeated, disordered or got wrong, of all its turns.

    A contender that promises no order disorders nothing.
    """
    totals: dict[tuple[str, str, bool], dict[str, int]] = {}
    for line in lines:
        if line["bench"] != MEASURED:
            continue
        mine = totals.setdefault((line["work"], line["name"], line["ours"]), {})
        for fault in _FAULTS:
            if fault == "disordered" and line["promise"].startswith(_UNORDERED):
                continue
            if count := line.get(fault, 0):
                mine[fault] = mine.get(fault, 0) + count
    for (work, name, ours), counts in totals.items():
        if counts:
            yield {"work": work, "name": name, "ours": ours, **counts}


def is_failure(line: Line) -> bool:
    """
    Return whether a line should fail the command.

    A contender has failed, or one of ours breaks a promise. A record that comes again is within
    the promises of consumers and pushers, which deliver at least once.
    """
    if line["bench"] == FAULT:
        return bool(line["ours"] and any(line.get(each) for each in _FAULTS if each != "repeated"))
    return bool(line["bench"] == FAILED)


def _ratio(mine: Sequence[Line], theirs: Sequence[Line], field: str) -> float | None:
    other = _median(theirs, field)
    return round(_median(mine, field) / other, 2) if other else None


def _median(lines: Sequence[Line], field: str) -> float:
    return float(median(line[field] for line in lines))
