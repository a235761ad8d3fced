"""Ask a process for its `/readyz` and `/metrics`."""

from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request

from dovecote.console.rules.facts import ProcessFacts
from dovecote.console.rules.numbers import numbers, process
from dovecote.process.http.asking import ask, body_of, json_of, why
from outbox.errors import DovecoteError

_MOST = 64_000
_MOST_METRICS = 4_000_000


class ProcessSource:
    """One process; one thread asks."""

    def __init__(self, kind: str, url: str, timeout: float) -> None:
        self._kind, self._url, self._timeout = kind, url, timeout
        self.requests = 0
        """Requests so far."""

    def ask(self) -> ProcessFacts:
        """
        Return what the process says of itself.

        Raises:
            DovecoteError: it does not answer, or what answers is none of ours.
        """
        ready = self._ready()
        # Push has thousands of numbers, and its API says what is needed.
        found = {} if self._kind == "push" else numbers(self._kind, self._lines())
        return process(self._kind, ready, found)

    def _ready(self) -> dict[str, object]:
        try:
            body = self._body("/readyz", _MOST)
        except HTTPError as error:
            body = body_of(error, _MOST)
            if error.code != 503:  # noqa: PLR2004  # not ready
                msg = f"/readyz answers {error.code}"
                raise DovecoteError(msg) from None
        try:
            told = json_of(body)
        except ValueError:
            told = None
        if not isinstance(told, dict) or "ok" not in told:
            msg = "its /readyz is not that of a process of Dovecote"
            raise DovecoteError(msg)
        return told

    def _lines(self) -> Iterator[str]:
        try:
            body = self._body("/metrics", _MOST_METRICS)
        except HTTPError as error:
            with error:
                msg = f"/metrics answers {error.code}"
                raise DovecoteError(msg) from None
        yield from body.decode("utf-8", errors="replace").splitlines()

    def _body(self, path: str, most: int) -> bytes:
        self.requests += 1
        try:
            return ask(Request(f"{self._url}{path}"), self._timeout, most)  # noqa: S310  # its scheme is checked
        except HTTPError:
            raise
        except (OSError, ValueError) as error:
            raise DovecoteError(why(error)) from error
