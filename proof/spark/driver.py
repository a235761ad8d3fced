"""A job as `spark-submit` runs it, which is killed and started again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from dovecote.devstack.kafka.java import java
from dovecote.devstack.places import LOOPBACK
from dovecote.devstack.spark.standalone import spark_home
from outbox.errors import DovecoteError

ROOT = Path(__file__).parents[2]
_END_SECONDS = 60.0
_BAD_USAGE = 2
_LINE = b'{"query"'
"""How the line of a batch begins."""


class Refused(DovecoteError):
    """The job does not start with these settings."""


class Driver:
    """A job's driver, in client mode. Its lines and its log are in files of `folder`."""

    def __init__(
        self,
        folder: Path,
        master: str,
        program: Sequence[str],
        *,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.lines, self.log = folder / "lines", folder / "driver.log"
        self.starts = 0
        script, *arguments = program
        self._command = [
            str(spark_home() / "bin/spark-submit"),
            *("--master", master),
            *("--conf", f"spark.driver.host={LOOPBACK}"),
            *options,
            str(ROOT / "spark_jobs/jobs" / script),
            *arguments,
            "--json",
        ]
        self._environ = {**environment(), **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0

    def is_up(self) -> bool:
        """Make sure that the job runs; return whether it has finished a batch since its start."""
        if self._process is None or self._process.poll() is not None:
            self._require_no_refusal()
            self.start()
            return False
        return self.batches() > self._began

    def start(self) -> None:
        self._began = self.batches()
        with self.lines.open("ab") as lines, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=lines, stderr=log, env=self._environ, start_new_session=True
            )
        self.starts += 1

    def wait_for_next(self) -> None:
        """From now on, `is_up` asks for a batch after this moment."""
        self._began = self.batches()

    def batches(self) -> int:
        """Return how many batches all runs have finished."""
        return self.lines.read_bytes().count(_LINE) if self.lines.exists() else 0

    def logged(self) -> int:
        """Return how many bytes Java and Python have logged."""
        # Spark joins Python's standard error to its output.
        text = self.lines.read_bytes().splitlines() if self.lines.exists() else []
        own = sum(len(line) + 1 for line in text if not line.startswith(_LINE))
        return own + self.log.stat().st_size

    def shown(self) -> list[dict[str, Any]]:
        """Return the lines of all batches."""
        if not self.lines.exists():
            return []
        text = self.lines.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith(_LINE.decode())]

    def kill(self) -> None:
        """SIGKILL the JVM, Python and all that they started."""
        if self._process is None or self._process.poll() is not None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        for each in [self._process, *children]:
            with suppress(psutil.NoSuchProcess):  # it ended with its parent
                each.kill()
        self._process.wait()
        psutil.wait_procs(children, timeout=_END_SECONDS)

    def stop(self) -> int:
        """
        End the job after its batch; return its exit status.

        The signal is for Python: the JVM of spark-submit would end both at once.
        """
        if self._process is None:
            return 0
        for each in psutil.Process(self._process.pid).children():
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                if any(argument.endswith("_stream.py") for argument in each.cmdline()):
                    each.send_signal(signal.SIGTERM)
        return self._process.wait(_END_SECONDS)

    def _require_no_refusal(self) -> None:
        if self._process is not None and self._process.returncode == _BAD_USAGE:
            said = self.lines.read_text(encoding="utf-8", errors="replace").splitlines()
            raise Refused(said[-1] if said else "the job does not start, and says nothing")


def environment() -> dict[str, str]:
    """Return the environment of a driver that runs this very code."""
    home = spark_home()
    return {
        **os.environ,
        **java().environment(),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        # The launcher of each start lives for a moment.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
