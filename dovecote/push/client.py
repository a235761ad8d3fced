"""Ask the API of `dovecote push serve`."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request

from dovecote.process.http.asking import ask, body_of, json_of, why
from dovecote.process.http.hosts import is_loopback
from dovecote.push.api import own_token
from outbox.errors import BadSettings, DovecoteError

# A replay waits for the consumers of a group to end.
_SECONDS = 90


@dataclass(frozen=True, slots=True)
class Api:
    """Where it is, and what lets us in."""

    url: str
    token: str | None
    mend: str = "give --api"
    """How its user says where it is."""

    @classmethod
    def of(cls, url: str, token_file: str | None) -> Self:
        """
        Return it with the token in a file, in DOVECOTE_API_TOKEN, or of this user.

        A server on this machine may have made the token of this user; no other server gets it.

        Raises:
            BadSettings: the file cannot be read, or the URL is none.
        """
        if not url.startswith(("http://", "https://")):
            msg = f"--api {url!r} is not a URL such as http://127.0.0.1:8080"
            raise BadSettings(msg)
        token = os.environ.get("DOVECOTE_API_TOKEN")
        if token_file is not None:
            try:
                token = Path(token_file).read_text(encoding="utf-8").strip()
            except OSError as error:
                msg = f"cannot read {token_file}: {error.strerror}"
                raise BadSettings(msg) from error
        elif token is None:
            token = _own(url)
        return cls(url.rstrip("/"), token)

    def __call__(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  # JSON
        """
        Return what it answers.

        Raises:
            DovecoteError: it does not answer, or says no.
        """
        request = Request(self.url + path, method=method)  # noqa: S310  # http or https, see `of`
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            return json_of(ask(request, _SECONDS))
        except HTTPError as error:
            raise DovecoteError(_why(error, self.mend)) from error
        except OSError as error:
            msg = (
                f"{self.url} does not answer ({why(error)}); is `dovecote push serve` running "
                f"there? Otherwise {self.mend}"
            )
            raise DovecoteError(msg) from error
        except ValueError as error:
            msg = f"{self.url} answers, but not as the API of `dovecote push serve` does"
            raise DovecoteError(msg) from error


def _own(url: str) -> str | None:
    """Return the token that a server of this user on this machine has made, if it is there."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except ValueError as error:
        msg = f"--api {url!r} is not a URL such as http://127.0.0.1:8080 ({error})"
        raise BadSettings(msg) from error
    file = own_token.default_file(os.environ)
    if not is_loopback(parts.hostname or "") or not file.exists():
        return None
    if own_token.strangers(port, own_token.kernels_tables(), {os.geteuid(), 0}):
        msg = (
            f"another user of this machine listens on port {port}, and does not get your token in "
            f"{file}; give --token-file if that server is the right one"
        )
        raise BadSettings(msg)
    return own_token.read(file)


def _why(error: HTTPError, mend: str) -> str:
    text = body_of(error, 100_000)
    if 300 <= error.code < 400:  # noqa: PLR2004  # redirects
        to = error.headers.get("Location", "")
        return (
            f"the API redirects to {to[:200]!r}, and no redirect is followed: the token would go "
            f"there; if you trust that address, {mend}"
        )
    try:
        return str(json_of(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the API answers {error.code}"
