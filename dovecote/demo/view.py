"""The demo's display: a live view on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dovecote.demo.check.verdict import Line

_LINE_EVERY_SECONDS = 2.0
_RATE_OVER_SECONDS = 1.5
_SHOWN = 10


class Stage(NamedTuple):
    """Progress of one part of the pipeline."""

    name: str
    done: int
    total: int


class Snapshot(NamedTuple):
    """The pipeline at one moment."""

    stages: tuple[Stage, ...]
    """
    In the order of the flow: a stage's lag is what the stage before it has done and it has not.
    """

    outcomes: tuple[tuple[str, int], ...]
    """Records in the topics that the job writes."""

    kills: int


class View(Protocol):
    """Shows progress."""

    def happened(self, text: str) -> None:
        """Report an event that is worth a line."""

    def update(self, snapshot: Snapshot) -> None:
        """Show the progress of all stages."""


@contextmanager
def shown(console: Console) -> Iterator[View]:
    """Yield a view on `console`: live if it is a terminal."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=5, transient=False) as live:
            yield _LiveView(live)
    else:
        yield _Lines(console)


def show_table(console: Console, lines: list[Line]) -> None:
    """Print the demo's final numbers."""
    table = Table(box=None, pad_edge=False)
    table.add_column("number")
    table.add_column("", justify="right")
    table.add_column("has to be")
    table.add_column("")
    for line in lines:
        mark = Text("ok", "green") if line.is_right else Text("WRONG", "bold red")
        table.add_row(line.what, f"{line.number:,}", line.wanted, mark if line.wanted else "")
    console.print("", table)


class _Rates:
    """Rates over the last moments."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, tuple[int, ...]]] = []

    def of(self, snapshot: Snapshot) -> tuple[float, ...]:
        now, done = time.monotonic(), tuple(stage.done for stage in snapshot.stages)
        self._seen = [
            *(old for old in self._seen if now - old[0] <= _RATE_OVER_SECONDS),
            (now, done),
        ]
        since, before = self._seen[0]
        span = max(now - since, 0.001)
        return tuple(
            (new - old) / span if len(self._seen) > 1 else 0.0
            for new, old in zip(done, before, strict=True)
        )


class _LiveView:
    def __init__(self, live: Live) -> None:
        self._live, self._rates = live, _Rates()
        self._started = time.monotonic()
        self._said: list[str] = []
        self._snapshot: Snapshot | None = None

    def happened(self, text: str) -> None:
        self._said.append(f"{time.monotonic() - self._started:5.1f} s  {text}")
        self._draw()

    def update(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._draw()

    def _draw(self) -> None:
        parts: list[RenderableType] = [Text(line) for line in self._said[-_SHOWN:]]
        if self._snapshot is not None:
            parts += ["", _progress(self._snapshot, self._rates.of(self._snapshot))]
            parts.append(_outcomes(self._snapshot))
        self._live.update(Group(*parts))


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console, self._rates = console, _Rates()
        self._started = time.monotonic()
        self._last = 0.0

    def happened(self, text: str) -> None:
        self._print(text)

    def update(self, snapshot: Snapshot) -> None:
        rates = self._rates.of(snapshot)
        begun = any(stage.done for stage in snapshot.stages)
        if not begun or time.monotonic() - self._last < _LINE_EVERY_SECONDS:
            return
        self._last = time.monotonic()
        stages = (
            f"{stage.name} {stage.done:,} ({rate:,.0f}/s)"
            for stage, rate in zip(snapshot.stages, rates, strict=True)
        )
        outcomes = (f"{name} {count:,}" for name, count in snapshot.outcomes)
        self._print(", ".join([*stages, *outcomes, f"kills {snapshot.kills}"]))

    def _print(self, text: str) -> None:
        passed = f"{time.monotonic() - self._started:5.1f} s  "
        self._console.print(passed + text, highlight=False, markup=False, soft_wrap=True)


def _progress(snapshot: Snapshot, rates: tuple[float, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "", "records", "per s", "lag"):
        table.add_column(name, justify="left" if name == "" else "right", min_width=9)
    before: Stage | None = None
    for stage, rate in zip(snapshot.stages, rates, strict=True):
        lag = "" if before is None else f"{max(before.done - stage.done, 0):,}"
        bar = ProgressBar(total=max(stage.total, 1), completed=stage.done, width=40)
        table.add_row(stage.name, bar, f"{stage.done:,}", f"{rate:,.0f}", lag)
        before = stage
    return table


def _outcomes(snapshot: Snapshot) -> Text:
    counts = [*snapshot.outcomes, ("kills of the relay", snapshot.kills)]
    return Text("   ".join(f"{name} {count:,}" for name, count in counts))
