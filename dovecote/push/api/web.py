"""Serve the operators' page."""

from collections.abc import Callable
from importlib.resources import files

from fastapi.responses import Response
from fastapi.routing import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from dovecote.push.api.routing import router

_PAGE_HEADERS = {
    # The page shows answers from strangers' endpoints: none of their content may run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def page() -> APIRouter:
    """Return the operators' page; it calls the API with the token that is typed into it."""
    routes = router()
    folder = files("dovecote.push").joinpath("page")
    for name in ("page.html", "page.css", "page.js", "loading.js"):
        path = "/" if name == "page.html" else f"/{name}"
        kind = f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8"
        routes.add_api_route(path, _file(folder.joinpath(name).read_bytes(), kind))
    return routes


def _file(content: bytes, kind: str) -> Callable[[], Response]:
    return lambda: Response(content, media_type=kind, headers=_PAGE_HEADERS)


def metrics(registry: Collector) -> APIRouter:
    """Return /metrics for a process that does not show it to everybody."""
    routes = router()

    @routes.get("/metrics")
    def shown() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes
