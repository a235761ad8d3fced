"""Check who may use the API and how large a request may be, and note in the audit log who did."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from anyio.to_thread import current_default_thread_limiter
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Asked

from dovecote.process.http.safe_headers import SAFE
from dovecote.push.api.caller import Caller, Turns
from dovecote.push.rules.access.routes import NEEDS, is_audited
from dovecote.push.rules.access.scope import NOBODY, Scope
from dovecote.push.rules.access.shares import room_for, share_of
from dovecote.push.store.audit import Deed, Entry

PUBLIC = frozenset(path for (_, path), need in NEEDS.items() if need == "nothing")
"""Open to everybody who can connect: none of it shows the contents of subscriptions."""

_SHOWING = frozenset(path for (_, path), need in NEEDS.items() if need == "sight")

_LENGTH = re.compile(r"[0-9]{1,18}")

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

    async def __call__(self, asked: Asked, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(asked, receive, sent)


class Access:
    """
    Lets a request through if it has a token, and notes it in the audit log.

    The route then checks the token's right, and `Control` checks all else that it may use.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Sequence[tuple[str, Scope]],
        max_body: int,
        note: Callable[[Entry], object],
    ) -> None:
        self._app, self._max_body, self._note = app, max_body, note
        share, self._threads = share_of(len(tokens)), room_for(len(tokens)).threads
        self._tokens = [(digest, scope, Turns(share)) for digest, scope in tokens]
        is_limited = any(not scope.sees_all for _, scope in tokens)
        self._public = PUBLIC if is_limited else PUBLIC | _SHOWING

    async def __call__(self, asked: Asked, receive: Receive, send: Send) -> None:
        if asked["type"] != "http":
            await self._app(asked, receive, send)
            return
        # The limit belongs to the loop, which did not run before.
        current_default_thread_limiter().total_tokens = self._threads
        headers = Headers(scope=asked)
        caller, refused = self._called(asked["path"], headers)
        refused = refused or self._too_large(headers)
        if refused is not None:
            if asked["path"] not in self._public:
                caller.error = refused[1]
                self._noted(asked, headers, caller, refused[0])
            await _answer(send, *refused)
            return
        asked.setdefault("state", {})["caller"] = caller
        limited = _Limited(receive, self._max_body)
        answer = limited.watch(self._noting(asked, headers, caller, send))
        await self._app(asked, limited, answer)

    def _called(self, path: str, headers: Headers) -> tuple[Caller, Answer | None]:
        """Return the caller, and why it may not ask."""
        if path in self._public:
            return Caller(NOBODY, is_open=True), None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = hashed(token.strip()).encode()
        # Compare with all tokens, so that the time does not show which one matched.
        known = [
            (scope, turns)
            for digest, scope, turns in self._tokens
            if hmac.compare_digest(given, digest.encode())
        ]
        if scheme.lower() == "bearer" and known:
            return Caller(*known[0]), None
        words = "missing or unknown token: send Authorization: Bearer …"
        return Caller(NOBODY), (401, words, _CHALLENGE)

    def _noting(self, asked: Asked, headers: Headers, caller: Caller, send: Send) -> Send:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and asked["path"] not in self._public:
                self._noted(asked, headers, caller, message["status"])
            await send(message)

        return noting

    def _noted(self, asked: Asked, headers: Headers, caller: Caller, status: int) -> None:
        """Note a request in the audit log, if it belongs there."""
        if not is_audited(asked["method"], caller.route, status):
            return
        deed = Deed(
            method=asked["method"],
            path=asked["path"],
            subscription=caller.subscription,
            status=status,
            error=caller.error,
            detail=caller.detail,
            address=(asked.get("client") or ("",))[0],
            forwarded=headers.get("x-forwarded-for", ""),
        )
        self._note(Entry(datetime.now(UTC), caller.scope.name, caller.owner, deed))

    def _too_large(self, headers: Headers) -> Answer | None:
        length = headers.get("content-length", "0")
        if not _LENGTH.fullmatch(length) or int(length) > self._max_body:
            return 413, f"the body is longer than {self._max_body} bytes", {"connection": "close"}
        return None


_CHALLENGE = {"www-authenticate": "Bearer"}


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
