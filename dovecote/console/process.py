"""Run all of `dovecote console` in one process: sources, picture, API and page."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from dovecote.console.access import Door
from dovecote.console.api import Parts, application
from dovecote.console.deeds import DeedLog
from dovecote.console.history import History
from dovecote.console.letters import DeadLetters
from dovecote.console.metrics import registry
from dovecote.console.settings import ConsoleSettings
from dovecote.console.showing import Showing
from dovecote.console.sources.doctor import OutboxDoctor
from dovecote.console.sources.finds import LifeFinder
from dovecote.console.watching import Watch
from dovecote.process.health import HealthReport
from dovecote.process.http.connections import Bounds
from dovecote.process.http.server import serve
from dovecote.process.states import MINUTE, State

_BOUNDS = Bounds(connections=128, requests=64)


class RunningConsole(NamedTuple):
    """A console that serves."""

    url: str
    watch: Watch
    showing: Showing


class ConsoleHealth:
    """Ready while the picture is made anew; a part that is not well is no reason not to be."""

    def __init__(self, showing: Showing) -> None:
        self._showing = showing

    def ready(self) -> HealthReport:
        """Return how the console itself is."""
        age = time.time() - self._showing.drawn_at
        if age > MINUTE:
            said = f"the picture is {age:.0f} s old: see the log"
            return HealthReport(ok=False, role="console", reason=said, state=State.STALLED)
        sources = self._showing.told["sources"]
        if sources and not any(each["ok"] for each in sources):
            if all(each["error"] == "" for each in sources):
                said = "no source has answered yet"
                return HealthReport(ok=True, role="console", reason=said, state=State.STARTING)
            said = f"no source answers; the first: {sources[0]['error']}"
            return HealthReport(ok=True, role="console", reason=said, state=State.FAILING)
        return HealthReport(ok=True, role="console", reason="watching", state=State.WORKING)


@contextmanager
def running(settings: ConsoleSettings) -> Iterator[RunningConsole]:
    """
    Watch the parts and serve the page until the block ends.

    Raises:
        BadSettings: the address cannot be listened on, the log cannot be kept, or there are too
            many sources.
    """
    table = settings.console
    with ExitStack() as stack:
        deeds = DeedLog(table.state)
        watch = Watch(settings)
        history = History(table.history.total_seconds())
        doctor = OutboxDoctor(settings.sources.outbox)
        stack.callback(doctor.close)
        showing = Showing(
            watch,
            every=table.every.total_seconds(),
            behind=table.behind.total_seconds(),
            write=table.write,
            history=history,
            prometheus_url=table.prometheus,
            doctor=doctor.findings,
        )
        parts = Parts(
            showing,
            DeadLetters(settings),
            LifeFinder(settings),
            deeds,
            Door(table.tokens, write=table.write),
        )
        port = stack.enter_context(
            serve(
                application(parts),
                table.http.host,
                table.http.port,
                hosts=table.http.hosts,
                bounds=_BOUNDS,
                health=ConsoleHealth(showing),
                numbers=registry(watch, showing, history),
            )
        )
        stack.callback(watch.stop)
        watch.start()
        stack.callback(showing.stop)
        showing.start()
        host = f"[{table.http.host}]" if ":" in table.http.host else table.http.host
        yield RunningConsole(f"http://{host}:{port}", watch, showing)
