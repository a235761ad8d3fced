"""The demo from end to end: set up, run, kill the relay meanwhile, drain, check."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dovecote.demo import configs
from dovecote.demo.check.evidence import EvidenceMissing, Where
from dovecote.demo.check.verdict import Line, Numbers, agrees, judge, numbers
from dovecote.demo.comparing import look
from dovecote.demo.flights import flights
from dovecote.demo.pipeline import Pipeline, Plan, prepare
from dovecote.demo.story import results, total
from dovecote.demo.topics import TOPICS
from dovecote.demo.view import View
from dovecote.demo.watch import Arrivals
from dovecote.devstack import Stack
from outbox.errors import DovecoteError

_LOOK_SECONDS = 0.2
# A supervisor restarts a crashed process after a moment, while work piles up.
_DOWN_SECONDS = 1.0
# Time between two looks for an open transaction; one is open for a few milliseconds.
_AIM_SECONDS = 0.001
_STUCK_SECONDS = 120.0


class Stuck(DovecoteError):
    """Progress stopped although not everything was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run."""

    directory: Path
    """For configuration files, checkpoint and logs."""

    flights: int
    writers: int
    kills: int
    """Number of times that the relay is killed."""


class DemoOutcome(NamedTuple):
    """How the demo ended."""

    numbers: Numbers
    lines: list[Line]
    notes: tuple[str, ...]
    """The differences, in words."""

    @property
    def is_well(self) -> bool:
        return agrees(self.lines)


def run(options: Options, view: View) -> DemoOutcome:
    """
    Run the demo.

    Raises:
        DovecoteError: it could not run to its end; the message gives the reason.
    """
    started = time.monotonic()
    (options.directory / "logs").mkdir(parents=True)
    view.happened("starting Postgres and Kafka")
    with Stack() as stack:
        try:
            kills = _run_pipeline(options, stack, view)
            view.happened("checking")
            return _check(options, stack, kills, lambda: time.monotonic() - started)
        finally:
            _keep_logs(stack, options.directory / "logs")


def _run_pipeline(options: Options, stack: Stack, view: View) -> int:
    expected = total(flights(options.flights), writers=options.writers)
    plan = Plan(
        dsn=stack.postgres.dsn,
        bootstrap=stack.kafka.bootstrap,
        directory=options.directory,
        flights=options.flights,
        writers=options.writers,
        committed=expected.committed,
        results=results(flights(options.flights)),
    )
    files = prepare(plan)
    with (
        Arrivals(plan.bootstrap, dict.fromkeys(TOPICS, configs.PARTITIONS)) as arrivals,
        Pipeline(plan, files, arrivals) as pipeline,
    ):
        pipeline.start_jobs()
        view.happened(f"relay {pipeline.start_relay()} started; waiting for the Spark jobs")
        # The first batches then run alongside the writers, and do not find a complete backlog.
        _drive_until(pipeline, view, Pipeline.are_jobs_ready)
        pipeline.start_writers()
        view.happened(
            f"{options.writers} writers started: {options.flights:,} flights, "
            f"{plan.committed:,} events, {expected.rolled_back:,} more to be rolled back"
        )
        for number in range(1, options.kills + 1):
            _drive_until(pipeline, view, _has_committed(plan, number, options.kills))
            _crash(pipeline, view)
        _drive_until(pipeline, view, lambda pipeline: pipeline.unfinished() is None)
        view.happened("all is drained; stopping the relay and the Spark jobs")
        pipeline.stop()
        view.update(pipeline.snapshot())
        return pipeline.kills


def _has_committed(plan: Plan, number: int, kills: int) -> Callable[[Pipeline], bool]:
    threshold = plan.committed * number // (kills + 1)
    return lambda pipeline: pipeline.last_committed >= threshold


def _drive_until(
    pipeline: Pipeline,
    view: View,
    done: Callable[[Pipeline], bool],
    *,
    pause: float = _LOOK_SECONDS,
) -> None:
    """Watch the pipeline until `done` returns true; ask it after each `pause`."""
    last, moved, looked = None, time.monotonic(), 0.0
    while True:
        now = time.monotonic()
        if now - looked >= _LOOK_SECONDS:
            pipeline.require_health()
            snapshot = pipeline.snapshot()
            view.update(snapshot)
            moved = moved if snapshot == last else now
            last, looked = snapshot, now
        if done(pipeline):
            return
        if now - moved > _STUCK_SECONDS:
            msg = (
                f"nothing has moved for {_STUCK_SECONDS:g} s; "
                f"waiting for {pipeline.unfinished() or 'nothing that is known'}"
            )
            raise Stuck(msg)
        time.sleep(pause)


def _crash(pipeline: Pipeline, view: View) -> None:
    """Kill the relay in the middle of a Kafka transaction, and start another one."""
    _drive_until(pipeline, view, _is_time_to_kill, pause=_AIM_SECONDS)
    pid = pipeline.kill_relay()
    # The broker aborts an open transaction when the next relay comes.
    left = "left a transaction open" if pipeline.is_relay_busy() else "left no transaction open"
    view.happened(f"relay {pid} killed with SIGKILL: {left}, {_waiting(pipeline)}")
    view.update(pipeline.snapshot())
    time.sleep(_DOWN_SECONDS)
    view.happened(f"relay {pipeline.start_relay()} started: {_waiting(pipeline)}")


def _is_time_to_kill(pipeline: Pipeline) -> bool:
    # If nothing is left to hit, there will be nothing later.
    return pipeline.catch_relay() or pipeline.is_all_published()


def _waiting(pipeline: Pipeline) -> str:
    return f"{max(pipeline.committed() - pipeline.published(), 0):,} events to publish"


def _check(
    options: Options, stack: Stack, kills: int, seconds: Callable[[], float]
) -> DemoOutcome:
    where = Where(dsn=stack.postgres.dsn, bootstrap=stack.kafka.bootstrap)
    try:
        found = look(where)
    except EvidenceMissing as error:
        msg = f"the check could not be made: {error}"
        raise DovecoteError(msg) from error
    told = numbers(*found, kills=kills, seconds=seconds())
    return DemoOutcome(told, judge(told, kills=options.kills), found.notes)


def _keep_logs(stack: Stack, directory: Path) -> None:
    for server in (stack.postgres, stack.kafka):
        if server.log.exists():
            shutil.copyfile(server.log, directory / f"{server.name.lower()}.log")
