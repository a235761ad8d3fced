"""Postgres and Kafka together."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from typing import Self
from weakref import finalize

from dovecote.devstack.kafka.kafka import JAVA_OPTIONS, Kafka
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.progress import Progress
from dovecote.devstack.server import Server


def start_together(servers: Sequence[Server]) -> None:
    """
    Start `servers` at the same time and wait until all answer.

    Raises:
        StackError: one did not start; the others are stopped again.
    """
    with ThreadPoolExecutor(max(1, len(servers))) as pool:
        starts = [pool.submit(server.start) for server in servers]
    failed = [error for start in starts if (error := start.exception()) is not None]
    if failed:
        for server in servers:
            server.stop()
        raise failed[0]


class Stack:
    """
    A Postgres and a Kafka that end with this process, however it ends.

    As a context manager it starts both at once and stops both at exit. The servers keep their data
    in `directory`; without one, in a temporary folder that is removed at exit.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        fsync: bool = True,
        postgres: Mapping[str, str] | None = None,
        kafka: Mapping[str, str] | None = None,
        kafka_java: Sequence[str] = JAVA_OPTIONS,
        postgres_version: str | None = None,
        kafka_version: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """
        Choose the servers; without a version, it is that of the data, or the usual one.

        Raises:
            UnknownVersion: there is no such version here.
            OtherVersion: the data in `directory` is of another version.
        """
        self._temporary = directory is None
        self.directory = (directory or temporary_directory(server_user())).absolute()
        if self._temporary:
            # Also removes the folder of a stack that is never started.
            finalize(self, _remove, self.directory, os.getpid())
        self.postgres = Postgres(
            self.directory / "postgres",
            fsync=fsync,
            settings=postgres,
            version=postgres_version,
            temporary=self._temporary,
            progress=progress,
        )
        self.kafka = Kafka(
            self.directory / "kafka",
            settings=kafka,
            java_options=kafka_java,
            version=kafka_version,
            temporary=self._temporary,
            progress=progress,
        )

    def start(self) -> None:
        """
        Start both servers and wait until they answer.

        Raises:
            StackError: one of them did not start; neither runs then.
        """
        try:
            start_together([self.postgres, self.kafka])
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both servers; their data goes if the folder was temporary."""
        try:
            self.postgres.stop()
        finally:
            # Skip the orderly end for data that is about to be removed: it takes Kafka a second.
            if self._temporary and not self.kafka.leaves_archive:
                self.kafka.kill()
            else:
                self.kafka.stop()
            if self._temporary:
                _remove(self.directory, os.getpid())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _remove(directory: Path, owner: int) -> None:
    """Remove the servers' temporary folder, but not from a fork of the process that made it."""
    if os.getpid() == owner:
        rmtree(directory, ignore_errors=True)
