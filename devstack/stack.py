"""Postgres and Kafka together."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Self

from devstack.kafka import Kafka
from devstack.places import temporary_directory
from devstack.postgres import Postgres, server_user
from devstack.progress import Progress


class Stack:
    """
    A Postgres and a Kafka that end with this process, however it ends.

    As a context manager it starts both at once and stops both at exit. The servers keep their
    data in `directory`; without one, in a temporary folder that is removed at exit.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        fsync: bool = True,
        postgres: Mapping[str, str] | None = None,
        kafka: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._temporary = directory is None
        self.directory = (directory or temporary_directory(server_user())).absolute()
        self.postgres = Postgres(
            self.directory / "postgres",
            fsync=fsync,
            settings=postgres,
            temporary=self._temporary,
        )
        self.kafka = Kafka(
            self.directory / "kafka",
            settings=kafka,
            temporary=self._temporary,
            progress=progress,
        )

    def start(self, *, detached: bool = False) -> None:
        """
        Start both servers and wait until they answer; detached ones outlive this process.

        Raises:
            StackError: one of them did not start; neither runs then.
        """
        servers = (self.postgres, self.kafka)
        with ThreadPoolExecutor(len(servers)) as pool:
            starts = [pool.submit(server.launch, detached=detached) for server in servers]
            wait(starts)
        failed = [error for start in starts if (error := start.exception()) is not None]
        if failed:
            self.stop()
            raise failed[0]

    def stop(self) -> None:
        """Stop both servers; their data goes if the folder was temporary."""
        try:
            self.postgres.stop()
        finally:
            # Data that is about to be removed needs no orderly end, which takes Kafka a second.
            if self._temporary:
                self.kafka.kill()
                rmtree(self.directory, ignore_errors=True)
            else:
                self.kafka.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
