"""Keep, beside a checkpoint, the settings with which it was made and must go on."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.query.checkpoint import local, pins, require_whole
from spark_jobs.query.pins import BEGAN, PINNED, Pins, foreign, refusal
from spark_jobs.source.offsets import Offsets


def pin(
    spark: SparkSession,
    checkpoint: str,
    wanted: Pins,
    *,
    begin: Callable[[], Offsets],
    adopt: bool = False,
    has_state: bool = False,
) -> Offsets:
    """
    Compare `wanted` with the settings of the checkpoint; a new checkpoint gets them.

    Returns where the query began: `begin` is asked once, before the first start. Uses Spark's own
    file systems, because a checkpoint may be on any of them. With `adopt`, what may be changed is
    changed, and a checkpoint that another program made is taken over.

    Raises:
        BadSettings: a setting has changed, or the checkpoint is damaged or not ours.
    """
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001  # no public way to Spark's file systems
    if jvm is None:
        msg = "this Spark has no JVM of its own: Spark Connect cannot run the job"
        raise BadSettings(msg)
    configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001  # as above
    files = _Files(context._gateway, jvm, configuration, checkpoint)  # noqa: SLF001  # as above
    found: dict[str, Any] = {}
    if (text := files.read(PINNED)) is not None:
        found = pins(checkpoint, PINNED, text)
    elif not adopt and files.exists("metadata"):
        raise BadSettings(foreign(checkpoint))
    if (folder := local(checkpoint)) is not None:
        require_whole(folder, has_state=has_state)
    if (reason := refusal(checkpoint, found, wanted, adopt=adopt)) is not None:
        raise BadSettings(reason)
    began = found[BEGAN] if BEGAN in found else _begun(files, begin)
    if found != (pinned := {**found, **wanted, BEGAN: began}):
        files.write(PINNED, json.dumps(pinned).encode())
    return Offsets.of(began)


def _begun(files: "_Files", begin: Callable[[], Offsets]) -> dict[str, Any]:
    """Return where the query begins, or where Spark's own source began, which ran it before."""
    text = files.read("sources/0/0")
    if text is not None:
        found: dict[str, Any] = json.loads(text[text.index("{") :])
        return found
    return begin().fields()


class _Files:
    """The files of a checkpoint."""

    def __init__(self, gateway: Any, jvm: Any, configuration: Any, checkpoint: str) -> None:  # noqa: ANN401  # Java's
        self._jvm, self._checkpoint = jvm, checkpoint
        self._gateway, self._configuration = gateway, configuration
        self._system = self._path(PINNED).getFileSystem(configuration)

    def _path(self, name: str) -> Any:  # noqa: ANN401  # as above
        return self._jvm.org.apache.hadoop.fs.Path(self._checkpoint, name)

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        """Return the text of a file; None: there is none."""
        if not self.exists(name):
            return None
        stream = self._system.open(self._path(name))
        text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        stream.close()
        return text

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is there as a whole, or not at all."""
        written = self._path(f".{name}.{uuid4().hex}.tmp")
        out = self._system.create(written, True)  # noqa: FBT003  # Java's argument
        out.write(bytearray(data))
        out.close()
        hadoop = self._jvm.org.apache.hadoop.fs
        # The name has a dollar sign, for the class is within another one.
        overwrite = getattr(hadoop, "Options$Rename").OVERWRITE
        options = self._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
        options[0] = overwrite
        context = hadoop.FileContext.getFileContext(written.toUri(), self._configuration)
        context.rename(written, self._path(name), options)
