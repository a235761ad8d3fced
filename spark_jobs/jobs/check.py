"""Check, before anything runs, whether a job could run."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException

from outbox.errors import BadSettings, DovecoteError
from spark_jobs.errors import KafkaUnavailable, MarkerRefused
from spark_jobs.policy.evaluation import load
from spark_jobs.query import checkpoint
from spark_jobs.query.pins import PINNED, foreign, refusal
from spark_jobs.query.settings import DedupSettings
from spark_jobs.query.topics import Job, reading, require_matches, require_topics
from spark_jobs.sink import markers
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.stateful.settings import StatefulSettings, recirculation

_SECONDS = 10.0


class Finding(NamedTuple):
    """One thing that was checked; `problem` is None if it is in order."""

    what: str
    problem: str | None


def check(settings: DedupSettings) -> Iterator[Finding]:
    """Yield what was checked; this changes nothing anywhere, and needs no Spark."""
    yield from check_job(settings, "filter and handler", lambda: _forget(load(settings.operator)))
    if settings.recirculation.run == "together":
        second = recirculation(settings)
        for look in (_checkpoint, _marker_topic, _markers):
            part = f"{look.__name__.strip('_').replace('_', ' ')} of {second.spark.query}"
            yield _looked(part, look, second)


def check_job(settings: Job, what: str, load_it: Callable[[], None]) -> Iterator[Finding]:
    """Like `check`, for any job; `load_it` loads the parts of its operator, named by `what`."""
    marker_topic = settings.marker_topic()
    looks: tuple[tuple[str, Callable[[Job], None]], ...] = (
        (what, lambda _: load_it()),
        ("checkpoint", _checkpoint),
        ("topics", _topics),
        (f"marker topic {marker_topic}", _marker_topic),
        ("markers", _markers),
    )
    for part, look in looks:
        yield _looked(part, look, settings)


def _looked(part: str, look: Callable[[Job], None], settings: Job) -> Finding:
    try:
        look(settings)
    except DovecoteError as error:
        return Finding(part, str(error).removeprefix(f"{part}: "))
    return Finding(part, None)


def _forget(_: object) -> None:
    """Ignore a result that was only made as a check."""


def _topics(settings: Job) -> None:
    """Refuse missing topics; before the first start also a pattern that takes in none."""
    require_topics(settings)
    folder = checkpoint.local(settings.spark.checkpoint)
    if folder is not None and not (folder / PINNED).exists() and query_id(folder) is None:
        require_matches(reading(settings), settings.source.topics)


def _marker_topic(settings: Job) -> None:
    topic = MarkerTopic(settings.marker_topic(), settings.kafka, timeout=_SECONDS)
    topic.ensure(settings.spark.shuffle_partitions, dry_run=True)


def _checkpoint(settings: Job) -> None:
    """Refuse a folder with other contents; only the cluster can check a URL."""
    folder = checkpoint.local(settings.spark.checkpoint)
    if folder is None:
        return
    if not folder.exists():
        parent = next(above for above in folder.absolute().parents if above.exists())
        if not os.access(parent, os.W_OK):
            msg = f"{folder} cannot be made: {parent} is not writable"
            raise BadSettings(msg)
    elif not folder.is_dir():
        msg = f"{folder} is not a folder"
        raise BadSettings(msg)
    elif query_id(folder) is None and any(PINNED not in file.name for file in folder.iterdir()):
        msg = (
            f"{folder} holds files, but no checkpoint of a query; give the job a folder of its own"
        )
        raise BadSettings(msg)
    else:
        _pins(folder, settings)
        checkpoint.require_whole(folder, has_state=isinstance(settings, StatefulSettings))


def _pins(folder: Path, settings: Job) -> None:
    """Refuse a checkpoint that was made with other settings, or by another program."""
    try:
        text = (folder / PINNED).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if query_id(folder) is not None:
            raise BadSettings(foreign(str(folder))) from None
        return
    found = checkpoint.pins(str(folder), PINNED, text)
    if (reason := refusal(str(folder), found, settings.pins())) is not None:
        raise BadSettings(reason)


def _markers(settings: Job) -> None:
    """Refuse markers that would stop the query, if the checkpoint can be read here."""
    folder = checkpoint.local(settings.spark.checkpoint)
    if folder is None:
        return
    topic = MarkerTopic(settings.marker_topic(), settings.kafka, timeout=_SECONDS)
    try:
        found = topic.read(range(topic.partitions()))
    except KafkaException as error:
        msg = f"{topic.name}: {error.args[0].str()}"
        raise KafkaUnavailable(msg) from error
    turn = markers.Turn(
        query=query_id(folder) or "(a new one)",
        batch=next_batch(folder),
        partition=0,
        partitions=settings.spark.shuffle_partitions,
    )
    for marker in found.values():
        if (reason := markers.refusal(marker, turn)) is not None:
            raise MarkerRefused(reason)


def query_id(folder: Path) -> str | None:
    """Return the id of the query to which a checkpoint belongs; None: to none yet."""
    try:
        return str(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError):  # cut or empty, which is said elsewhere
        return ""


def next_batch(folder: Path) -> int:
    """Return the number of the batch with which a query with this checkpoint begins."""
    planned, done = (checkpoint.numbers(folder / log) for log in ("offsets", "commits"))
    newest = max(planned, default=-1)
    return newest + 1 if newest in done or newest < 0 else newest
