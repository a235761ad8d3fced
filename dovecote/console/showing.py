"""Make the picture anew every few seconds, and answer for it without asking anybody."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from dovecote.console.api import as_json
from dovecote.console.asked import ConsoleError
from dovecote.console.history import History
from dovecote.console.rules.facts import Heard, Samples
from dovecote.console.rules.motion import Memory, counts
from dovecote.console.rules.picture import Drawing, Drawn
from dovecote.console.rules.telling import flow, moment, told
from dovecote.console.shapes import (
    FindingShape,
    FlowShape,
    PartShape,
    ProcessShape,
    SeriesShape,
    TableShape,
)
from dovecote.console.sources import prometheus
from dovecote.console.watching import Watch
from outbox.errors import DovecoteError

_log = logging.getLogger("dovecote.console")

Doctor = Callable[[str], list[FindingShape] | None]
"""Returns the findings about an outbox, by its name."""


class Showing:
    """The picture of now, and what is known of each part."""

    def __init__(
        self,
        watch: Watch,
        *,
        every: float,
        behind: float,
        write: bool,
        history: History,
        prometheus_url: str | None,
        doctor: Doctor,
    ) -> None:
        self._watch, self._every, self._behind, self._write = watch, every, behind, write
        self._history, self._prometheus, self._doctor = history, prometheus_url, doctor
        self._memory = Memory()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="picture", daemon=True)
        self._samples: Samples = watch.samples()
        self._drawing: Drawing | None = None
        self._told: FlowShape | None = None
        self._json = b"{}"
        self.drawn_at = 0.0
        """When the picture was last made, in seconds since 1970."""
        self.look()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._watch.turned.set()
        self._thread.join()

    def look(self, now: float | None = None) -> FlowShape:
        """Make the picture of now."""
        at = time.time() if now is None else now
        samples = self._watch.samples()
        self._memory.follow(counts(self._watch.plan, samples))
        drawing = Drawing(self._watch.plan, samples, self._memory, at, self._behind)
        states = {each.id: each.judged.state for each in drawing.nodes.values()}
        self._memory.settle(states, at)
        found = flow(
            drawing,
            samples,
            self._memory,
            at,
            every=self._every,
            write=self._write,
            history="own" if self._prometheus is None else "prometheus",
        )
        self._history.add(at, found["nodes"])
        self._samples, self._drawing, self._told = samples, drawing, found
        self._json = as_json(found)
        self.drawn_at = at
        return found

    @property
    def told(self) -> FlowShape:
        """The picture that was made last."""
        assert self._told is not None  # noqa: S101  # the constructor makes one
        return self._told

    def flow(self) -> bytes:
        return self._json

    def part(self, node: str) -> PartShape:
        drawn = self._drawn(node)
        kind, _, rest = node.partition("/")
        shown = told(drawn, self._memory.since(node, time.time()))
        return PartShape(
            node=shown,
            processes=self._processes(drawn),
            tables=[*self._tables(drawn)],
            doctor=self._doctor(rest) if kind == "outbox" else None,
        )

    def history(self, node: str, minutes: int) -> Sequence[SeriesShape]:
        self._drawn(node)
        now = time.time()
        if self._prometheus is not None:
            found = prometheus.lines(
                self._prometheus, self._watch.plan, node, minutes=minutes, now=now
            )
            if found:
                return found
        return self._history.lines(node, minutes, now)

    def _run(self) -> None:
        while not self._end.is_set():
            began, worked = time.monotonic(), time.thread_time()
            try:
                self.look()
            except Exception:  # noqa: BLE001  # logged, and its health shows it
                # The page says how old its picture is, and /readyz that there is no new one.
                _log.exception("the picture could not be made")
            self._end.wait(max(20 * (time.thread_time() - worked), 0.1))
            # Half of a source's pace, so that a trouble is shown soon after it was seen; and at
            # once if a source no longer answers, or a subscription has another state.
            self._watch.turned.wait(max(self._every / 2 - (time.monotonic() - began), 0.0))
            self._watch.turned.clear()

    def _drawn(self, node: str) -> Drawn:
        found = None if self._drawing is None else self._drawing.nodes.get(node)
        if found is None:
            msg = f"there is no part {node[:200]!r}"
            raise ConsoleError(404, msg, "see the parts in the picture: it may be gone")
        return found

    def _processes(self, drawn: Drawn) -> list[ProcessShape]:
        plan = self._watch.plan
        kind, _, name = drawn.id.partition("/")
        urls: Sequence[str] = ()
        if kind == "outbox":
            urls = next((each.urls for each in plan.outboxes if each.name == name), ())
        elif kind == "relay":
            outbox, _, where = name.partition("/")
            known = next((each.urls for each in plan.outboxes if each.name == outbox), ())
            urls = [each for each in known if each.endswith(f"//{where}")]
        elif drawn.kind == "push":
            urls = next((each.urls for each in plan.pushes if each.name == name), ())
        else:
            urls = next((each.urls for each in plan.readers if each.id == drawn.id), ())
        return [self._process(url) for url in urls]

    def _process(self, url: str) -> ProcessShape:
        heard = self._samples.processes.get(url, Heard())
        found = heard.fresh(time.time())
        state = "failing" if heard.error else "unknown" if found is None else found.state
        return ProcessShape(
            url=url,
            state=cast(Any, state),
            role="" if found is None else found.role,
            reason=heard.error or ("" if found is None else found.reason),
            at=None if heard.at is None else moment(heard.at),
        )

    def _tables(self, drawn: Drawn) -> list[TableShape]:
        plan, samples = self._watch.plan, self._samples
        kind, _, name = drawn.id.partition("/")
        if kind == "outbox":
            facts = samples.outboxes.get(name, Heard()).value
            rows = [
                [each.name, "yes" if each.active else "no", str(each.standbys), str(each.parked)]
                for each in ([] if facts is None else facts.shards)
            ]
            columns = ["shard", "active relay", "standbys", "parked"]
            return [TableShape(title="Shards", columns=columns, rows=rows)]
        if kind == "consumer":
            reader = next(each for each in plan.readers if each.id == drawn.id)
            cluster = samples.clusters.get(reader.cluster, Heard()).value
            group = None if cluster is None else cluster.groups.get(reader.group)
            lags: Mapping[str, int] = {} if group is None else group.lag
            rows = [
                [topic, f"{lags[topic]:,}" if topic in lags else "?"] for topic in reader.topics
            ]
            return [TableShape(title="Topics", columns=["topic", "waiting"], rows=rows)]
        if drawn.kind == "subscription":
            return self._attempts(drawn)
        return []

    def _attempts(self, drawn: Drawn) -> list[TableShape]:
        push, _, subscription = drawn.id.removeprefix("push/").partition("/")
        columns = ["at", "event", "attempt", "status", "outcome", "ms", "detail"]
        last = self._watch.push[push].attempts(subscription)[:50]
        try:
            rows = [_attempt(each) for each in last]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            msg = f"push's API answers in another form ({error!r}): is it of this version?"
            raise DovecoteError(msg) from error
        return [TableShape(title="Last attempts", columns=columns, rows=rows)]


def _attempt(told: Mapping[str, Any]) -> list[str]:
    return [
        moment(float(told["at"])),
        str(told["event_id"]),
        str(told["number"]),
        "no answer" if told["status"] is None else str(told["status"]),
        str(told["outcome"]),
        f"{float(told['seconds']) * 1000:.0f}",
        str(told["detail"])[:500],
    ]
