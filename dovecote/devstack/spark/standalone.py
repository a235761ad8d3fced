"""A standalone cluster of Spark on loopback ports: a master, and workers with executors."""

import json
import os
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import util
from pathlib import Path
from typing import Any, Self

import psutil

from dovecote.devstack.errors import StackError
from dovecote.devstack.kafka.java import java
from dovecote.devstack.keeper import Launch
from dovecote.devstack.places import LOOPBACK
from dovecote.devstack.server import Server

_ASK_SECONDS = 2.0
_GRACE_SECONDS = 10.0
_EXECUTOR = "CoarseGrainedExecutorBackend"


def spark_home() -> Path:
    """
    Return the folder of the Spark that the wheel of PySpark carries.

    Raises:
        StackError: it is not installed.
    """
    found = util.find_spec("pyspark")
    for location in (found and found.submodule_search_locations) or ():
        return Path(location)
    msg = "Spark comes with the pyspark wheel: pip install 'dovecote[stack]'"
    raise StackError(msg)


class _Part(Server):
    """A daemon of Spark."""

    main: str
    """Its Java class."""

    def __init__(
        self,
        directory: Path,
        *,
        env: Mapping[str, str],
        temporary: bool = False,
        is_there: bool = False,
    ) -> None:
        super().__init__(directory, temporary=temporary)
        self._env, self._is_there = env, is_there
        self._ports: tuple[int, int] | None = None

    @property
    def ports(self) -> tuple[int, int]:
        """The port of the daemon and the port of its page, chosen once and then kept."""
        if self._ports is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._ports = self._keep_port("port"), self._keep_port("page-port")
        return self._ports

    def _keep_port(self, name: str) -> int:
        # Ports of a daemon that another process already runs are not free, and still right.
        kept = self.directory / name
        return int(kept.read_text()) if self._is_there else super()._keep_port(name)

    def asked(self) -> dict[str, Any]:
        """Return what its page says of it."""
        url = f"http://{LOOPBACK}:{self.ports[1]}/json/"
        with urllib.request.urlopen(url, timeout=_ASK_SECONDS) as answer:  # our own
            found: dict[str, Any] = json.load(answer)
            return found

    def _prepare(self) -> Launch:
        port, page = self.ports
        home = spark_home()
        at = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
        return Launch(
            argv=[str(home / "bin/spark-class"), self.main, *at, *self._more()],
            env={
                **os.environ,
                **java().environment(),
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_DAEMON_MEMORY": "256m",
                # A daemon lives for minutes: compiling twice would cost more than it saves.
                "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                **self._env,
            },
            directory=str(self.directory),
            log=str(self.log),
            grace=_GRACE_SECONDS,
        )

    def _more(self) -> Sequence[str]:
        return ()


class Master(_Part):
    """The master, to which jobs are submitted."""

    name = "Spark's master"
    main = "org.apache.spark.deploy.master.Master"

    @property
    def url(self) -> str:
        """The address for `spark-submit --master`."""
        return f"spark://{LOOPBACK}:{self.ports[0]}"

    def alive(self) -> set[int]:
        """Return the ports of the workers that it counts on."""
        return {each["port"] for each in self.asked()["workers"] if each["state"] == "ALIVE"}

    def _probe(self) -> str | None:
        try:
            status = str(self.asked()["status"])
        except (OSError, ValueError) as error:
            return str(error)
        return None if status == "ALIVE" else f"it is {status}"


class Worker(_Part):
    """A worker, which runs the executors of jobs."""

    main = "org.apache.spark.deploy.worker.Worker"

    def __init__(
        self,
        directory: Path,
        *,
        number: int,
        master: Master,
        cores: int,
        memory: str,
        env: Mapping[str, str],
        temporary: bool = False,
    ) -> None:
        super().__init__(directory, env=env, temporary=temporary)
        self.name = f"Spark's worker {number}"
        self._master, self._cores, self._memory = master, cores, memory

    @property
    def address(self) -> str:
        """The address of its page."""
        return f"http://{LOOPBACK}:{self.ports[1]}"

    def executors(self) -> list[psutil.Process]:
        """Return the processes of its executors."""
        return [each for each in self._children() if _is_executor(each)]

    def _children(self) -> Iterator[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            yield from psutil.Process(self.pid).children(recursive=True)

    def _more(self) -> Sequence[str]:
        size = ["--cores", str(self._cores), "--memory", self._memory]
        return [*size, "--work-dir", str(self.directory / "work"), self._master.url]

    def _probe(self) -> str | None:
        try:
            is_known = self.ports[0] in self._master.alive()
        except (OSError, ValueError) as error:
            return str(error)
        return None if is_known else "the master does not know it yet"


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any(_EXECUTOR in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False


class SparkCluster:
    """
    A master and workers, which end with this process, however it ends.

    As a context manager it starts all of them, and stops them at exit. Executors import what this
    process imports: they get its environment.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "2g",
        env: Mapping[str, str] | None = None,
        temporary: bool = False,
        has_master: bool = False,
    ) -> None:
        """
        Make a cluster that does not run yet.

        `cores` and `memory` are those of each worker, and `env` is more for its executors. With
        `has_master`, another process runs the master already.
        """
        given = dict(env or {})
        self.directory = directory
        self.master = Master(
            directory / "master", env=given, temporary=temporary, is_there=has_master
        )
        self.workers = [
            Worker(
                directory / f"worker-{number}",
                number=number,
                master=self.master,
                cores=cores,
                memory=memory,
                env=given,
                temporary=temporary,
            )
            for number in range(1, workers + 1)
        ]

    @property
    def url(self) -> str:
        """The address for `spark-submit --master`."""
        return self.master.url

    def executors(self) -> list[psutil.Process]:
        """Return the processes of all executors."""
        return [found for each in self.workers if each.running for found in each.executors()]

    def start(self) -> None:
        """
        Start all, and wait until the master counts on each worker.

        Raises:
            StackError: one of them did not start; none runs then.
        """
        try:
            self.master.start()
            with ThreadPoolExecutor(len(self.workers)) as pool:
                for start in [pool.submit(each.start) for each in self.workers]:
                    start.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all, with their executors."""
        for each in [*self.workers, self.master]:
            each.kill()  # they keep nothing

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
