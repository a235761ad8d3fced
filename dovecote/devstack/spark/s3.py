"""An S3 on a loopback port: moto's server, which keeps objects in its memory."""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib import util
from pathlib import Path

from dovecote.devstack.errors import StackError
from dovecote.devstack.keeper import Launch
from dovecote.devstack.places import LOOPBACK
from dovecote.devstack.server import Server

ACCESS, SECRET = "stack", "stack-secret"
"""Credentials for clients that need some; the server takes any."""
_ASK_SECONDS = 5.0


class S3Server(Server):
    """An S3 for checkpoints. Its objects are gone when it ends."""

    name = "S3"

    def __init__(
        self, directory: Path, *, buckets: tuple[str, ...] = (), temporary: bool = False
    ) -> None:
        super().__init__(directory, temporary=temporary)
        self._buckets = buckets
        self._port: int | None = None

    @property
    def url(self) -> str:
        """The endpoint."""
        if self._port is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._port = self._keep_port("port")
        return f"http://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """
        Start it, and make its buckets.

        Raises:
            StackError: it did not start, or moto is not installed.
        """
        if util.find_spec("moto") is None:
            msg = "the stack's S3 is moto's server: pip install 'dovecote[s3]'"
            raise StackError(msg)
        super().start()
        for bucket in self._buckets:
            self._asked(f"/{bucket}", "PUT")

    def spark(self) -> Mapping[str, str]:
        """Return the configuration with which a job of Spark uses it."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": ACCESS,
            # With moto, the upload of files of a state would otherwise never end.
            "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        }

    def _prepare(self) -> Launch:
        port = self.url.rpartition(":")[2]
        return Launch(
            argv=[sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", port],
            env=dict(os.environ),
            directory=str(self.directory),
            log=str(self.log),
        )

    def _probe(self) -> str | None:
        try:
            self._asked("/moto-api/", "GET")
        except urllib.error.HTTPError:
            return None
        except OSError as error:
            return str(error)
        return None

    def _asked(self, path: str, method: str) -> None:
        request = urllib.request.Request(f"{self.url}{path}", method=method)  # noqa: S310  # our own
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS) as answer:  # noqa: S310  # as above
            answer.read()
