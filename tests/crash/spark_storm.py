"""Spark jobs as a process whose parts are killed, and which is started again."""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from dovecote.devstack import Stack
from tests.support.waiting import patient

BAD_USAGE = 2
ROOT = Path(__file__).parents[2]
SMALL_PARTS = Path(__file__).with_name("small_parts")
"""Its code makes states large early, so that kills meet their parts."""
# On a busy machine, Spark takes a while to start.
PATIENCE = 600.0


class Storm:
    """`dovecote spark` as a process that is started again whenever it ends, and its killer."""

    def __init__(
        self, stack: Stack, folder: Path, arguments: Sequence[str], dice: random.Random
    ) -> None:
        self.stack, self.dice, self._arguments = stack, dice, arguments
        self.killed: Counter[str] = Counter()
        self.starts = 0
        self._began = 0
        self._log = folder / "jobs.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = str(Path(sys.executable).with_name("dovecote"))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [command, "spark", *self._arguments, "--json", "--master", "local[2,4]"],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{SMALL_PARTS}"},
            )
        self.starts += 1

    def is_up(self) -> bool:
        """Make sure that the jobs run; return whether they have finished a batch since a kill."""
        process = self._process
        if process is None or process.poll() is not None:
            assert process is None or process.returncode != BAD_USAGE, self._log.read_text()
            self.start()
            self._began = self.batches()
            return False
        return self.batches() > self._began

    def batches(self) -> int:
        return self._log.read_bytes().count(b'{"query"') if self._log.exists() else 0

    def kill(self, what: str) -> None:
        assert self._process is not None
        self.killed[what] += 1
        self._began = self.batches()
        if what == "broker":
            self.stack.kafka.kill()
            self.stack.kafka.start()
        elif what == "driver":
            self.end()
        else:
            for victim in self._victims(what):
                with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                    victim.kill()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            self._process.wait()
            # They notice the kill; the next driver must not meet them.
            psutil.wait_procs(children, timeout=patient(30))

    def _victims(self, what: str) -> list[psutil.Process]:
        assert self._process is not None
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
            if what == "jvm":
                return [each for each in found if each.name() == "java"]
            workers = [each for each in found if "pyspark.daemon" in " ".join(each.cmdline())]
        except psutil.NoSuchProcess:
            return []  # it ended meanwhile
        return self.dice.sample(workers, min(1, len(workers)))


@contextmanager
def storm(
    stack: Stack, folder: Path, arguments: Sequence[str], dice: random.Random
) -> Iterator[Storm]:
    """Run `dovecote spark ARGUMENTS`, to be killed."""
    running = Storm(stack, folder, arguments, dice)
    running.start()
    try:
        yield running
    finally:
        running.end()
