"""Show a long download: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TextIO, TypeAlias

_LINE_EVERY_SECONDS = 2.0


class Fetched(NamedTuple):
    """State of a download."""

    what: str
    modules: int
    """Modules whose description is known."""

    jars: int
    megabytes: float

    def __str__(self) -> str:
        if self.jars:
            return f"{self.what}: {self.jars} of {self.modules} jars, {self.megabytes:.1f} MB"
        return f"{self.what}: {self.modules} modules found"


Progress: TypeAlias = Callable[[Fetched], None]


@contextmanager
def shown(out: TextIO | None = None) -> Iterator[Progress]:
    """Yield a `Progress` that writes to `out` (standard error)."""
    stream = sys.stderr if out is None else out
    with _live(stream) if stream.isatty() else _lines(stream) as progress:
        yield progress


@contextmanager
def _live(out: TextIO) -> Iterator[Progress]:
    from rich.console import Console

    console = Console(file=out)
    with console.status("looking for jars") as status:
        yield lambda fetched: status.update(str(fetched))


@contextmanager
def _lines(out: TextIO) -> Iterator[Progress]:
    last: tuple[float, str] = (0.0, "")

    def write(fetched: Fetched) -> None:
        nonlocal last
        now = time.monotonic()
        if fetched.what != last[1] or now - last[0] >= _LINE_EVERY_SECONDS:
            last = (now, fetched.what)
            out.write(f"{fetched}\n")
            out.flush()

    yield write
