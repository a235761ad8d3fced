"""Ask a Spark job which batch took a record: its checkpoint, or otherwise its markers."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from dedup.rules.unread import Place
from dovecote.observe.find.rules.facts import Batch
from dovecote.observe.find.rules.took import in_markers, took
from dovecote.observe.sources import SparkSource
from outbox.errors import DovecoteError
from spark_jobs.checkpoint.damage import local
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.source.offsets import Offsets

_SECONDS = 5.0


def ask(source: SparkSource, places: Collection[Place]) -> dict[Place, Batch]:
    """
    Return the batch that took each record, as far as the job's own stores say.

    Raises:
        DovecoteError: neither the checkpoint nor the markers can be read.
    """
    folder = _folder(source.spark.checkpoint)
    found: dict[Place, Batch] = {}
    if folder is not None:
        found = _in_checkpoint(folder, places)
    left = [each for each in places if each not in found]
    if left and source.spark.query:
        topic = MarkerTopic(
            f"dovecote.markers.{source.spark.query}", source.kafka, timeout=_SECONDS
        )
        markers = topic.read(range(topic.partitions())).values()
        found |= in_markers(left, markers)
    return found


def _folder(checkpoint: str) -> Path | None:
    """Return the folder of a checkpoint on this machine's disk; None: it is elsewhere."""
    folder = local(checkpoint) if checkpoint else None
    return folder if folder is not None and folder.is_dir() else None


def _in_checkpoint(folder: Path, places: Collection[Place]) -> dict[Place, Batch]:
    numbers = sorted(int(each.name) for each in _files(folder / "offsets"))
    finished = {int(each.name) for each in _files(folder / "commits")}
    read: dict[int, Mapping[str, Mapping[int, int]]] = {}

    def ends(number: int) -> Mapping[str, Mapping[int, int]]:
        if number not in read:
            read[number] = _ends(folder / "offsets" / str(number))
        return read[number]

    return _taken(places, numbers, finished, ends)


def _taken(
    places: Collection[Place],
    numbers: list[int],
    finished: set[int],
    ends: Callable[[int], Mapping[str, Mapping[int, int]]],
) -> dict[Place, Batch]:
    found: dict[Place, Batch] = {}
    for place in places:
        batch = took(place, numbers, ends)
        if batch is not None:
            found[place] = Batch(batch, batch in finished)
    return found


def _files(folder: Path) -> list[Path]:
    """Return the batches' files in a folder of the log; Spark's temporary ones have a dot."""
    return [each for each in folder.iterdir() if each.name.isdecimal()] if folder.is_dir() else []


def _ends(file: Path) -> Mapping[str, Mapping[int, int]]:
    """Return the next offsets to read after a batch, of all its sources."""
    found: dict[str, Mapping[int, int]] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:  # Spark removes old ones
        return {}
    for line in lines[2:]:  # a version and Spark's own settings come first
        try:
            found |= Offsets.decode(line).ends
        except (ValueError, AttributeError, TypeError) as error:
            msg = f"{file} is no log of offsets of a job of ours ({error})"
            raise DovecoteError(msg) from error
    return found
