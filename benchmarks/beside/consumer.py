"""
The consumer beside a loop that one writes by hand and Confluent's Parallel Consumer.

All read one topic, each as a group and a process of its own. The clocks of Dovecote and the loop
run from the first record to the last. A JVM compiles first, so its clock leaves out a third.
"""

from typing import NamedTuple
from uuid import uuid4

from benchmarks import harness
from benchmarks.beside import tools
from benchmarks.beside.figures import Figures
from benchmarks.beside.parallel import JARS
from benchmarks.beside.turns import Contender, Turns, Wanted
from benchmarks.dedup_consumer import CHILD, LONGEST_SECONDS, Load, consumed, fill

_LANES = 100
_LOOP = "from benchmarks.keyed_loop import main; main()"
LOADS = {
    "consumer": Load(0, _LANES, 600_000),
    "consumer_work": Load(10, _LANES, 30_000),
}
"""A handler that does nothing, and one that waits for 10 ms."""

_ENDING_SECONDS = 60


class _Filled(NamedTuple):
    """A topic that is filled."""

    bootstrap: str
    topic: str
    load: Load

    def group(self) -> str:
        """Return the name of a new group."""
        return f"{self.topic}-{uuid4().hex[:8]}"


def run(work: str, wanted: Wanted) -> bool:
    """Measure them in turn; return whether one has failed."""
    load = LOADS[work]
    # As long as the usual one lasts: with 10 ms of work a record takes 20 times as long.
    share = wanted.of(LOADS["consumer"].records) / LOADS["consumer"].records
    load = load._replace(records=max(100, round(load.records * share)))
    turns = Turns(work, [_python("dovecote", CHILD), _python("keyed_loop", _LOOP), _parallel()])
    with harness.servers() as stack:
        filled = _Filled(stack.kafka.bootstrap, harness.topic(stack), load)
        fill(filled.bootstrap, filled.topic, load)
        for turn in range(wanted.rounds):
            turns.take(filled, turn)
    return turns.failed


def _python(name: str, code: str) -> Contender[_Filled]:
    ours = name == "dovecote"

    def measure(filled: _Filled) -> Figures:
        found = consumed(code, filled.bootstrap, filled.topic, filled.load, group=filled.group())
        handled = found["handled"]
        return Figures(
            per_s=handled / found["seconds"],
            cpu_us=found["cpu"] / max(1, handled) * 1e6,
            lost=filled.load.records - round(handled),
            repeated=round(found["duplicates"]),
            disordered=round(found["violations"]),
            peak_mb=round(found["peak_bytes"] / 1e6),
        )

    has = "retries, dead letters, dedup" if ours else "no retries, no dead letters, no dedup"
    return Contender(name, f"in order per key, at least once; {has}", measure, ours=ours)


def _parallel() -> Contender[_Filled]:
    def measure(filled: _Filled) -> Figures:
        load = filled.load
        command = tools.program("ParallelConsume", JARS, "-Xmx1g")
        place = (filled.bootstrap, filled.topic, filled.group())
        numbers = (load.records, load.records // 3, load.lanes, round(load.work_ms))
        found = tools.said(
            [*command, *place, *map(str, numbers), str(LONGEST_SECONDS)],
            within=LONGEST_SECONDS + _ENDING_SECONDS,
        )
        counted = max(1, found["counted"])
        return Figures(
            per_s=counted / found["seconds"],
            cpu_us=found["cpu"] / counted * 1e6,
            lost=load.records - round(found["handled"]),
            repeated=round(found["duplicates"]),
            disordered=round(found["violations"]),
            peak_mb=round(found["peak_bytes"] / 1e6),
        )

    return Contender(
        "parallel_consumer",
        "in order per key, at least once; retries, no dead letters, no dedup",
        measure,
        prepare=lambda: tools.program("ParallelConsume", JARS),
    )
