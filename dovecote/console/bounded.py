"""Bound the bodies of requests, and give each answer the headers that keep browsers safe."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dovecote.process.http.safe_headers import SAFE

_LENGTH = re.compile(r"[0-9]{1,18}")


class Bounded:
    """Hands a request on if its body says that it is short enough, and ends one that is longer."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not _fits(length, self._most):
            refused = JSONResponse(
                {
                    "error": f"the body is longer than {self._most} bytes, or has no length",
                    "todo": "name fewer letters at a time, and send a Content-Length",
                },
                413,
                {"connection": "close"},
            )
            await refused(scope, receive, safe)
            return
        await self._app(scope, receive, safe)


def _fits(length: str, most: int) -> bool:
    return _LENGTH.fullmatch(length) is not None and int(length) <= most
