"""Run an auditor: read, judge, keep, state and report, once or for ever."""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dovecote.audit.comparing import Comparison
from dovecote.audit.continuing import wall
from dovecote.audit.following import Following
from dovecote.audit.judging import Judge
from dovecote.audit.metrics import Metrics
from dovecote.audit.parts import Plan
from dovecote.audit.pushing import Pushing
from dovecote.audit.rules.matching import Counts
from dovecote.audit.rules.statement import BEGINNING, sealed
from dovecote.audit.statements import append
from dovecote.audit.store import Store
from dovecote.process.health import HealthReport
from dovecote.process.states import State

_log = logging.getLogger("dovecote.audit")
_COMMIT_SECONDS, _JUDGE_SECONDS, _FOLLOW_SECONDS, _SHOW_SECONDS = 2.0, 1.0, 2.0, 5.0
_COMMIT_EVENTS = 150_000
_DAY = 86_400_000
_STILL_SECONDS = 60.0
_FRESH_SECONDS = 60.0


class Outcome(NamedTuple):
    """The result of an auditor."""

    statement: dict[str, Any]
    findings: int
    troubles: int

    @property
    def status(self) -> int:
        """Return the exit status: 0 clean, 1 findings, 3 not everything could be looked at."""
        return 1 if self.findings else 3 if self.troubles else 0


class Auditor:
    """All comparisons of one plan, and their state."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self._store = plan, store
        self.comparison = Comparison(plan, store)
        self.judge = Judge(self.comparison)
        self.followers = [self._following(index) for index in range(len(plan.followers))]
        self.pushers = [Pushing(each, store) for each in plan.pushers]
        self.metrics = Metrics()
        self._committed = self._judged = self._followed = self._shown = 0.0
        self._committed_events = 0
        self._worked: float | None = None
        self._reported: set[str] = set()
        self._began_at: int = store.fact("began_at") or wall()
        self._last_day: int = store.fact("last_day") or wall() // _DAY
        store.note("began_at", self._began_at)
        store.note("last_day", self._last_day)
        self._write()

    def close(self) -> None:
        """Close what is open; what is not committed is read again."""
        self.comparison.close()
        for each in self.followers:
            each.close()

    def _following(self, index: int) -> Following:
        plan = self.plan
        return Following(plan.followers[index], self._store, plan.since, plan.grace)

    def run(self, stop: threading.Event, report: Callable[[dict[str, Any]], None]) -> None:
        """Go on until `stop`; report each finding once, and each statement."""
        while not stop.is_set():
            moved = self._step()
            now = time.monotonic()
            if now - self._judged > _JUDGE_SECONDS:
                self._commit()
                self.judge.round()
                self._judged = now
                self._report(report)
            if now - self._followed > _FOLLOW_SECONDS:
                self._follow()
                self._followed = now
            if now - self._shown > _SHOW_SECONDS:
                self._show()
                self._shown = now
            if wall() // _DAY > self._last_day:
                report(self.state())
            if not moved:
                stop.wait(0.02)
        self._commit()

    def once(self) -> Outcome:
        """Compare everything that there is now, and return what was found."""
        comparison = self.comparison
        self._settle(lambda until: self._has_read(until, rows=True))
        ends = comparison.guarded("Kafka", comparison.ends)
        if ends is None:
            return self._outcome()

        def is_read(_: int) -> bool:
            if comparison.is_full:
                self._commit()
                self.judge.alone()
            return comparison.has_reached(ends)

        self._settle(is_read)
        self._settle(lambda until: self._has_read(until, rows=True))
        until = comparison.now()

        def is_judged(_: int) -> bool:
            self._commit()
            self.judge.round(until)
            return not self.judge.is_busy(until)

        self._settle(is_judged)
        for _ in range(1_000):
            self._follow(grace=0)
            if not any(each.is_behind for each in self.followers):
                break
        self._commit()
        return self._outcome()

    def _outcome(self) -> Outcome:
        statement = self.state()
        return Outcome(statement, len(statement["findings"]), len(statement["troubles"]))

    def _settle(self, done: Callable[[int], bool]) -> None:
        """Read and judge until `done` with the time of now, or until nothing moves any more."""
        until, still = self.comparison.now(), time.monotonic()
        records = self.comparison.matcher.records
        alone = len(records)
        while not done(until):
            before, alone = alone, len(records)
            if self._step() or alone < before:
                still = time.monotonic()
            if time.monotonic() - still > _STILL_SECONDS:
                self.comparison.troubles["reading"] = (
                    f"nothing came for {_STILL_SECONDS:.0f} s before everything was read: "
                    "a server is away, or a transaction is open"
                )
                return

    def _has_read(self, until: int, *, rows: bool) -> bool:
        return rows and all(
            each.in_log or each.covered >= until for each in self.comparison.outlooks
        )

    def _step(self) -> bool:
        moved = self.comparison.step()
        if not self.comparison.troubles:
            self._worked = time.monotonic()
        new = self.comparison.events - self._committed_events
        now = time.monotonic()
        if new > _COMMIT_EVENTS or (new and now - self._committed > _COMMIT_SECONDS):
            self._commit()
        return moved

    def _commit(self) -> None:
        # A kill after the findings finds them again, and one before them has kept no match.
        self.judge.matched()
        self.comparison.commit()
        self._committed, self._committed_events = time.monotonic(), self.comparison.events

    def _follow(self, grace: int | None = None) -> None:
        comparison = self.comparison
        for index, each in enumerate(self.followers):

            def look(each: Following = each) -> bool:
                with self._store.whole():
                    for finding in each.look(comparison.now(), grace=grace):
                        self.judge.add(finding)
                return True

            if comparison.guarded(each.follower.part, look) is None:
                # Its reading is not kept, so it begins again where the state is.
                each.close()
                self.followers[index] = self._following(index)
            elif each.trouble:
                comparison.troubles[f"reading {each.follower.part}"] = each.trouble
            else:
                comparison.troubles.pop(f"reading {each.follower.part}", None)
        for pushing in self.pushers:
            comparison.guarded(pushing.pusher.part, pushing.look)

    def _report(self, report: Callable[[dict[str, Any]], None]) -> None:
        if not self.judge.found:
            return
        self.judge.found = 0
        found = self._store.findings()
        for each in found:
            name = json.dumps([each["kind"], each["part"], each["topic"], each["id"]])
            if name not in self._reported:
                self._reported.add(name)
                report(each)
        self._reported &= {
            json.dumps([each["kind"], each["part"], each["topic"], each["id"]]) for each in found
        }

    def _show(self) -> None:
        comparison, metrics = self.comparison, self.metrics
        for topic in comparison.matcher.topics:
            told = {name: each for name, each in asdict(topic.counts).items() if name != "latest"}
            metrics.topic(topic.name, **told)
        for each in self.followers:
            metrics.consumer(each.follower.name, **each.counts)
        for outbox, outlook in zip(self.plan.outboxes, comparison.outlooks, strict=True):
            behind = (wall() - outlook.covered_wall) / 1000 if outlook.covered_wall else 0.0
            metrics.lag.labels(outbox.name).set(max(0.0, behind))
        metrics.findings(each["kind"] for each in self._store.findings())
        metrics.open.labels("rows").set(len(comparison.matcher.rows) + self._store.cold)
        metrics.open.labels("records").set(len(comparison.matcher.records))
        for outbox, log in zip(self.plan.outboxes, comparison.logs, strict=True):
            metrics.slot_bytes.labels(outbox.name).set(log.retained)
            gaps = [each for each in comparison.sources.not_audited if each.part == outbox.part]
            seconds = sum(each.until - each.since for each in gaps if each.since) / 1000
            metrics.not_audited.labels(outbox.name).set(seconds)
        metrics.troubles.set(len(comparison.troubles) + len(comparison.sources.said))
        metrics.state_bytes.set(self._store.size())
        metrics.events.set(comparison.events)
        self._write()
        window = int(self.plan.window * 1000)
        self._store.forget(wall() - window, wall(), comparison.now() - window)
        self._store.forget_aside(wall() - 30 * _DAY)

    def ready(self) -> HealthReport:
        """Return whether everything could be looked at within the last minute."""
        troubles = self.comparison.troubles
        why = next(iter(troubles.values()), "")
        if self._worked is None:
            state = State.FAILING if troubles else State.STARTING
            return _health(state, why or "nothing was read yet", ok=not troubles)
        if time.monotonic() - self._worked > _FRESH_SECONDS:
            return _health(State.FAILING, why or "nothing was read within the last minute")
        sources = self.comparison.sources
        gaps = [each.text for each in sources.not_audited if each.since is not None]
        if over := [*sources.over.values(), *gaps]:
            return _health(State.BEHIND, why or over[-1], ok=True)
        covered = all(each.complete for each in self.comparison.outlooks)
        return _health(State.WORKING if covered else State.BEHIND, why, ok=True)

    def state(self) -> dict[str, Any]:
        """Return the statement since the last one, sealed; the next one begins after it."""
        # The counts and the places of the reading are kept together, before they are stated.
        self._commit()
        comparison, store = self.comparison, self._store
        until = wall()
        topics = {}
        for topic in comparison.matcher.topics:
            topics[topic.name] = asdict(topic.counts)
        told = {
            "statement": int(store.fact("statements", 0)) + 1,
            "from": _time(self._began_at),
            "to": _time(until),
            "outboxes": [each.part for each in self.plan.outboxes],
            "topics": topics,
            "consumers": {each.follower.part: dict(each.counts) for each in self.followers},
            "push": {each.pusher.part: each.counts for each in self.pushers},
            "open": {
                "rows": len(comparison.matcher.rows) + store.cold,
                "records": len(comparison.matcher.records),
            },
            "pairs_without_lock": comparison.unlocked,
            "findings": store.findings(unstated=True),
            "not_audited": [each.as_json() for each in comparison.sources.not_audited],
            "troubles": sorted([*comparison.troubles.values(), *comparison.sources.said]),
        }
        statement = sealed(told, store.fact("last_hash", BEGINNING))
        for topic in comparison.matcher.topics:
            topic.counts = Counts()
        self._began_at, self._last_day = until, until // _DAY
        with store.whole():
            store.stated()
            store.note("topics", [asdict(each) for each in comparison.matcher.topics])
            store.note("statements", told["statement"])
            store.note("last_hash", statement["hash"])
            store.note("began_at", self._began_at)
            store.note("last_day", self._last_day)
            store.note("not_audited", [])
            store.note("over", {})
            if self.plan.statements is not None:
                store.note("unwritten", [*store.fact("unwritten", []), statement])
        comparison.sources.forget()
        self._write()
        return statement

    def _write(self) -> None:
        """Write the statements that no file has yet; a kill at any moment writes none twice."""
        file, unwritten = self.plan.statements, self._store.fact("unwritten", [])
        if file is None or not unwritten:
            return
        try:
            append(file, unwritten)
        except OSError as error:
            self.comparison.troubles["statements"] = (
                f"cannot write {file}: {error}: {len(unwritten)} statements wait in the state file"
            )
            return
        self.comparison.troubles.pop("statements", None)
        self._store.note("unwritten", [])


def _health(state: State, reason: str, *, ok: bool = False) -> HealthReport:
    return HealthReport(ok=ok, role="auditor", reason=reason, state=state)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


COUNTED = tuple(each.name for each in fields(Counts))
"""The counts of each topic in a statement."""
