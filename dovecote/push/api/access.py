"""Check who may use the API and how large a request may be, before anything else runs."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dovecote.process.safe_headers import SAFE

PUBLIC = frozenset(
    {"/", "/page.css", "/page.js", "/openapi.json", "/metrics", "/healthz", "/readyz"}
)
"""Open to everybody who can connect: none of it shows the contents of subscriptions."""

_LENGTH = re.compile(r"[0-9]{1,18}")
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

Answer: TypeAlias = tuple[int, str, dict[str, str]]


def hashed(token: str) -> str:
    """
    Return the hash of a token as the settings hold it: tokens are random, so they need no salt.
    """
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


class Safe:
    """Adds the headers of `SAFE` to each answer, and to a refused request's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sent)


class Access:
    """
    Lets a request through if it has a token, or, without any tokens, if it is from this machine.

    Without tokens a request must also name this machine as its host. Otherwise a web page in a
    local browser could reach the API through a name of its own that resolves to this machine.
    """

    def __init__(self, app: ASGIApp, *, tokens: Mapping[str, str], max_body: int) -> None:
        self._app, self._tokens, self._max_body = app, dict(tokens), max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope["path"], headers) or self._too_large(headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        limited = _Limited(receive, self._max_body)
        await self._app(scope, limited, limited.watch(send))

    def _refused(self, path: str, headers: Headers) -> Answer | None:
        if path in PUBLIC:
            return None
        if not self._tokens:
            return None if _is_local(headers) else (403, _FOREIGN, {})
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = hashed(token.strip()).encode()
        # Compare with all tokens, so that the time does not show which one matched.
        known = [hmac.compare_digest(given, each.encode()) for each in self._tokens.values()]
        if scheme.lower() == "bearer" and any(known):
            return None
        return 401, "missing or unknown token: send Authorization: Bearer …", _CHALLENGE

    def _too_large(self, headers: Headers) -> Answer | None:
        length = headers.get("content-length", "0")
        if not _LENGTH.fullmatch(length) or int(length) > self._max_body:
            return 413, f"the body is longer than {self._max_body} bytes", {"connection": "close"}
        return None


_CHALLENGE = {"www-authenticate": "Bearer"}
_FOREIGN = (
    "without api.tokens only requests to localhost are answered, and none that come from another "
    "site's page"
)


def _is_local(headers: Headers) -> bool:
    origin = headers.get("origin")
    names = [f"//{headers.get('host', '')}", *([origin] if origin is not None else [])]
    return all(_host(each) in _OWN_NAMES for each in names)


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


class _Limited:
    """Receives a body up to a length; if it is longer, sends an error in place of the answer."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most = receive, most
        self._left, self._over = most, False

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                self._over = True
                return {"type": "http.request", "body": b"", "more_body": False}
        return message

    def watch(self, send: Send) -> Send:
        said = False

        async def watched(message: Message) -> None:
            nonlocal said
            if not self._over:
                await send(message)
            elif not said:
                said = True
                text = f"the body is longer than {self._most} bytes"
                await _answer(send, 413, text, {"connection": "close"})

        return watched


async def _answer(send: Send, status: int, text: str, more: Mapping[str, str]) -> None:
    body = json.dumps({"error": text, "problems": []}).encode()
    headers: dict[str, Any] = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **more,
    }
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
