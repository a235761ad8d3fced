"""Ask a server of ours, and nobody else: no proxy on the way, and no redirect to another."""

import json
import re
import time
from http.client import HTTPException, HTTPMessage, HTTPResponse, IncompleteRead
from typing import IO, Any, cast
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from dovecote.process.strict_json import refuse


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: urllib would send our headers, and so the token, to another server."""

    def redirect_request(  # noqa: PLR0917  # as the base has it
        self,
        req: Request,  # noqa: ARG002  # the base's arguments
        fp: IO[bytes],  # noqa: ARG002
        code: int,  # noqa: ARG002
        msg: str,  # noqa: ARG002
        headers: HTTPMessage,  # noqa: ARG002
        newurl: str,  # noqa: ARG002
    ) -> None:
        return None


# As an escape, or as bytes that Python's decoder lets pass.
_PERHAPS_HALF = re.compile(rb"\\u[dD][89A-Fa-f]|\xed[\xa0-\xbf]")

# Without an empty handler urllib takes proxies from the environment, for loopback too.
_opener = build_opener(ProxyHandler({}), _Stay())
# The body of an error is read no longer than this.
_ERROR_SECONDS = 5.0
_PART = 65_536


def ask(request: Request, seconds: float, most: int | None = None) -> bytes:
    """
    Return the body of the answer, or its first `most` bytes, from the server of the request's URL.

    The server has `seconds` for each part that it sends, and for a body as a whole unless that
    comes in chunks.

    Raises:
        HTTPError: the answer is an error, or a redirect; its body is left to `body_of`.
        OSError: there is no answer, or it is not HTTP, or ends too early.
    """
    try:
        with _opener.open(request, timeout=seconds) as answer:
            return _body(answer, seconds, most)
    except OSError:
        raise
    except HTTPException as error:
        msg = f"no whole answer of HTTP: {error!r:.200}"
        raise OSError(msg) from error


def _body(answer: HTTPResponse, seconds: float, most: int | None) -> bytes:
    """Read a body in parts: the time limit of a socket is for each part that comes."""
    until, found = time.monotonic() + seconds, bytearray()
    while most is None or len(found) < most:
        part = answer.read1(_PART if most is None else min(_PART, most - len(found)))
        found += part
        if not part and (lacking := getattr(answer, "length", None)):
            raise IncompleteRead(bytes(found), lacking)
        if not part:
            break
        if time.monotonic() > until:
            msg = f"the answer takes longer than {seconds:g} s"
            raise TimeoutError(msg)
    return bytes(found)


def body_of(error: HTTPError, most: int) -> bytes:
    """Return the first bytes of the body of an error; empty: they do not come."""
    with error:
        try:
            return _body(cast("HTTPResponse", error.fp), _ERROR_SECONDS, most)
        except (OSError, HTTPException):
            return b""


def json_of(body: bytes) -> Any:  # noqa: ANN401  # whatever it holds
    """
    Return what a body holds; each half of a surrogate pair alone becomes an escape.

    Neither an answer nor a log nor Postgres could hold such a half.

    Raises:
        ValueError: it is not JSON, or nested too deeply; NaN and Infinity are not JSON.
    """
    try:
        found = json.loads(body, parse_constant=refuse)
        return _writable(found) if _PERHAPS_HALF.search(body) else found
    except RecursionError as error:
        msg = "it is nested too deeply"
        raise ValueError(msg) from error


def _writable(told: Any) -> Any:  # noqa: ANN401  # JSON
    match told:
        case str():
            return told.encode(errors="backslashreplace").decode()
        case dict():
            return {_writable(name): _writable(each) for name, each in told.items()}
        case list():
            return [_writable(each) for each in told]
        case _:
            return told


def why(error: Exception) -> str:
    """Return in a few words why there is no answer."""
    found = getattr(error, "reason", None) or error
    return getattr(found, "strerror", None) or str(found) or type(found).__name__
