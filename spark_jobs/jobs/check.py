"""Check, before anything runs, whether a job could run."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, Self

from pyspark.sql import SparkSession

from outbox.errors import BadSettings, DovecoteError
from spark_jobs.checkpoint import damage
from spark_jobs.checkpoint.files import Files, LocalFiles, SparkFiles
from spark_jobs.checkpoint.pins import PINNED, foreign, refusal
from spark_jobs.checkpoint.restarts import RUNS
from spark_jobs.errors import MarkerRefused
from spark_jobs.policy.evaluation import load
from spark_jobs.query.configuring import configuration
from spark_jobs.query.session import close_session, open_session, submitted
from spark_jobs.query.settings import DedupSettings, SparkSettings
from spark_jobs.query.topics import Job, reading, require_matches, require_topics
from spark_jobs.sink import markers
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.source.topics import patterns
from spark_jobs.stateful.settings import StatefulSettings, recirculation

_SECONDS = 10.0


class Finding(NamedTuple):
    """One thing that was checked; `problem` is None if it is in order."""

    what: str
    problem: str | None


class Checkpoints:
    """
    Gives the files of checkpoints.

    Starts one Spark for all that are not on a disk of this machine; `master` None: spark-submit
    has started it.
    """

    def __init__(self, master: str | None = "local[1]") -> None:
        self._master = master
        self._session: SparkSession | None = None

    def files(self, settings: SparkSettings) -> Files:
        """
        Return the files of a job's checkpoint.

        Raises:
            DovecoteError: there is no such file system, or it does not answer.
        """
        folder = damage.local(settings.checkpoint)
        if folder is not None:
            return LocalFiles(folder)
        if self._session is None:
            given = submitted() if self._master is None else {}
            found = configuration(settings, master=self._master, given=given)
            self._session = open_session(found)
        return SparkFiles(self._session, settings.checkpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            close_session(self._session)


def check(settings: DedupSettings, checkpoints: Checkpoints | None = None) -> Iterator[Finding]:
    """Yield what was checked; this changes nothing anywhere."""
    with _or_own(checkpoints) as found:
        yield from check_job(
            settings, "filter and handler", lambda: _forget(load(settings.operator)), found
        )
        if settings.recirculation.run == "separate":
            retries = settings.output.retry_topic
            yield Finding(
                f"retry topic {retries}: this job leaves its records there, and `dovecote spark "
                'delay` puts them back; recirculation.run = "together" does both',
                None,
            )
        else:
            second = recirculation(settings)
            for look in (_checkpoint, _marker_topic, _markers):
                part = f"{look.__name__.strip('_').replace('_', ' ')} of {second.spark.query}"
                yield _looked(part, look, second, found)


def check_job(
    settings: Job,
    what: str,
    load_it: Callable[[], None],
    checkpoints: Checkpoints | None = None,
) -> Iterator[Finding]:
    """Like `check`, for any job; `load_it` loads the parts of its operator, named by `what`."""
    marker_topic = settings.marker_topic()
    looks: tuple[tuple[str, Callable[[Job, Checkpoints], None]], ...] = (
        (what, lambda _, __: load_it()),
        ("checkpoint", _checkpoint),
        ("topics", _topics),
        (f"marker topic {marker_topic}", _marker_topic),
        ("markers", _markers),
    )
    with _or_own(checkpoints) as found:
        for part, look in looks:
            yield _looked(part, look, settings, found)


def _or_own(checkpoints: Checkpoints | None) -> AbstractContextManager[Checkpoints]:
    return Checkpoints() if checkpoints is None else nullcontext(checkpoints)


def _looked(
    part: str,
    look: Callable[[Job, Checkpoints], None],
    settings: Job,
    checkpoints: Checkpoints,
) -> Finding:
    try:
        look(settings, checkpoints)
    except DovecoteError as error:
        return Finding(part, str(error).removeprefix(f"{part}: "))
    except OSError as error:
        where = error.filename or settings.spark.checkpoint
        reason = (
            f"{where}: {error.strerror or error}: correct the path, or run the check as the user "
            "of the job"
        )
        return Finding(part, reason)
    return Finding(part, None)


def _forget(_: object) -> None:
    """Ignore a result that was only made as a check."""


def _topics(settings: Job, checkpoints: Checkpoints) -> None:
    """Refuse missing topics; before the first start also a pattern that takes in none."""
    require_topics(settings)
    if not patterns(settings.source.topics):
        return
    files = checkpoints.files(settings.spark)
    if files.read(PINNED) is None and query_id(files) is None:
        require_matches(reading(settings), settings.source.topics)


def _marker_topic(settings: Job, _: Checkpoints) -> None:
    topic = MarkerTopic(settings.marker_topic(), settings.kafka, timeout=_SECONDS)
    topic.ensure(settings.spark.shuffle_partitions, dry_run=True)


def _checkpoint(settings: Job, checkpoints: Checkpoints) -> None:
    """Refuse a place that cannot be used, or that has other contents."""
    files = checkpoints.files(settings.spark)
    if isinstance(files, LocalFiles):
        _require_usable(files.folder)
    if query_id(files) is None and not all(map(_is_ours, files.names())):
        msg = (
            f"{files.place} holds files, but no checkpoint of a query; give the job a folder of "
            "its own"
        )
        raise BadSettings(msg)
    _pins(files, settings)
    if isinstance(files, LocalFiles):
        damage.require_whole(files.folder, has_state=isinstance(settings, StatefulSettings))


def _is_ours(name: str) -> bool:
    """Return whether a job leaves a file of this name before Spark leaves any, or its checksum."""
    return PINNED in name or RUNS in name


def _require_usable(folder: Path) -> None:
    if not folder.exists():
        parent = next(above for above in folder.absolute().parents if above.exists())
        if not os.access(parent, os.W_OK):
            msg = f"{folder} cannot be made: {parent} is not writable"
            raise BadSettings(msg)
    elif not folder.is_dir():
        msg = f"{folder} is not a folder"
        raise BadSettings(msg)


def _pins(files: Files, settings: Job) -> None:
    """Refuse a checkpoint that was made with other settings, or by another program."""
    text = files.read(PINNED)
    if text is None:
        if query_id(files) is not None:
            raise BadSettings(foreign(files.place))
        return
    found = damage.pins(files.place, PINNED, text)
    if (reason := refusal(files.place, found, settings.pins())) is not None:
        raise BadSettings(reason)


def _markers(settings: Job, checkpoints: Checkpoints) -> None:
    """Refuse markers that would stop the query."""
    try:
        turn = _next_turn(settings, checkpoints.files(settings.spark))
    except DovecoteError as error:
        msg = "they cannot be compared with a checkpoint that cannot be read"
        raise BadSettings(msg) from error
    topic = MarkerTopic(settings.marker_topic(), settings.kafka, timeout=_SECONDS)
    for marker in topic.read(range(topic.partitions())).values():
        if (reason := markers.refusal(marker, turn)) is not None:
            raise MarkerRefused(reason)


def _next_turn(settings: Job, files: Files) -> markers.Turn:
    return markers.Turn(
        query=query_id(files) or "(a new one)",
        batch=next_batch(files),
        partition=0,
        partitions=settings.spark.shuffle_partitions,
    )


def query_id(files: Files) -> str | None:
    """Return the id of the query to which a checkpoint belongs; None: to none yet."""
    text = files.read("metadata")
    try:
        return None if text is None else str(json.loads(text)["id"])
    except (ValueError, TypeError, KeyError):  # cut or empty, which is said elsewhere
        return ""


def next_batch(files: Files) -> int:
    """Return the number of the batch with which a query with this checkpoint begins."""
    planned, done = (damage.numbered(files.names(log)) for log in ("offsets", "commits"))
    newest = max(planned, default=-1)
    return newest + 1 if newest in done or newest < 0 else newest
