"""Serve the console's page: each file of its folder, and nothing from elsewhere."""

from collections.abc import Callable, Mapping
from importlib.resources import files
from types import MappingProxyType

from fastapi import APIRouter
from fastapi.responses import Response

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        # The page shows what is in events: none of it may run.
        "Content-Security-Policy": (
            "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
            "frame-ancestors 'none'; object-src 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
)

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}
_FIRST = "page.html"


def page() -> APIRouter:
    """Return the page and the files that it loads."""
    routes = APIRouter()
    for each in files("dovecote.console").joinpath("page").iterdir():
        kind = _KINDS.get(each.name.rpartition(".")[2])
        if kind is None or not each.is_file():
            continue
        answer = _file(each.read_bytes(), kind)
        path = "/" if each.name == _FIRST else f"/{each.name}"
        routes.add_api_route(path, answer, include_in_schema=False)
    return routes


def _file(content: bytes, kind: str) -> Callable[[], Response]:
    def answered() -> Response:
        return Response(content, media_type=kind, headers=dict(HEADERS))

    return answered
