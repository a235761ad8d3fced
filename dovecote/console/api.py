"""The console's API."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from dovecote.console.access import Door, Guest
from dovecote.console.asked import (
    ConsoleError,
    Deeds,
    Finds,
    Letters,
    Named,
    Picture,
    Verb,
    Wanted,
)
from dovecote.console.bounded import Bounded
from dovecote.console.shapes import MeShape
from dovecote.console.web import page
from dovecote.process.plainly import words
from outbox.errors import BadSettings, DovecoteError

_log = logging.getLogger("dovecote.console")

MAX_BODY = 256_000
"""Most bytes of a request's body."""

_MOST_LETTERS = 500
_MOST_NAMED = 1_000
_TEXT = Query(min_length=1, max_length=1_000)
Text: TypeAlias = Annotated[str | None, _TEXT]
Time: TypeAlias = Annotated[AwareDatetime | None, Query()]


class _NamedBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    part: Annotated[str, Field(min_length=1, max_length=500)]
    place: Annotated[str, Field(min_length=1, max_length=1_000)]


class _Chosen(BaseModel):
    """The letters that are meant."""

    model_config = ConfigDict(extra="forbid")

    letters: Annotated[list[_NamedBody], Field(min_length=1, max_length=_MOST_NAMED)]


class Parts:
    """The parts of the console that the API asks."""

    def __init__(  # noqa: PLR0917  # one for each duty
        self, picture: Picture, letters: Letters, finds: Finds, deeds: Deeds, door: Door
    ) -> None:
        self.picture, self.letters, self.finds = picture, letters, finds
        self.deeds, self.door = deeds, door


def application(parts: Parts) -> Bounded:
    """Return the page and the API."""
    app = FastAPI(
        title="Dovecote console",
        version=version("dovecote"),
        summary="How every part is, and what to do about it.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.include_router(page())
    app.include_router(_shown(parts))
    app.include_router(_letters(parts))
    _errors(app)
    return Bounded(app, MAX_BODY)


def _reader(parts: Parts) -> Callable[[Request], Guest]:
    def reader(request: Request) -> Guest:
        guest = parts.door.guest(request.headers.get("authorization", ""))
        guest.require("read")
        return guest

    return reader


def _shown(parts: Parts) -> APIRouter:
    reader = _reader(parts)
    routes = APIRouter(prefix="/api", dependencies=[Depends(reader)])

    @routes.get("/flow")
    async def flow() -> Response:
        # It is made already, so it needs no thread.
        return Response(parts.picture.flow(), media_type="application/json")

    @routes.get("/part")
    def part(id: Annotated[str, _TEXT]) -> JSONResponse:  # noqa: A002  # as the address says it
        return JSONResponse(parts.picture.part(id))

    @routes.get("/history")
    def history(
        id: Annotated[str, _TEXT],  # noqa: A002
        minutes: Annotated[int, Query(ge=1, le=60 * 24 * 31)] = 60,
    ) -> JSONResponse:
        return JSONResponse({"series": list(parts.picture.history(id, minutes))})

    @routes.get("/find")
    def find(
        id: Text = None,  # noqa: A002
        key: Text = None,
        topic: Text = None,
        since: Time = None,
    ) -> JSONResponse:
        if (id is None) == (key is None):
            msg = "an event is found by its id, or by its key"
            raise ConsoleError(422, msg, "give `id` or `key`, and not both")
        return JSONResponse(parts.finds.life(id, key, topic, since))

    @routes.get("/log")
    def log(limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> JSONResponse:
        return JSONResponse({"entries": parts.deeds.last(limit)})

    @routes.get("/me")
    def me(guest: Annotated[Guest, Depends(reader)]) -> JSONResponse:
        told = MeShape(name=guest.name, rights=sorted(guest.rights), needs_token=guest.needs_token)
        return JSONResponse(told)

    return routes


def _letters(parts: Parts) -> APIRouter:
    reader = _reader(parts)
    routes = APIRouter(prefix="/api/dead", dependencies=[Depends(reader)])

    @routes.get("")
    def dead(  # noqa: PLR0917  # one for each filter
        part: Text = None,
        topic: Text = None,
        key: Text = None,
        id: Text = None,  # noqa: A002
        type: Text = None,  # noqa: A002
        reason: Text = None,
        since: Time = None,
        until: Time = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_LETTERS)] = 50,
        after: Text = None,
    ) -> JSONResponse:
        wanted = Wanted(part, topic, key, id, type, reason, since, until, limit, after)
        return JSONResponse(parts.letters.page(wanted))

    def resolve(guest: Guest, verb: Verb, body: _Chosen) -> JSONResponse:
        guest.require("write")
        named = [Named(each.part, each.place) for each in body.letters]
        return JSONResponse(resolved(parts, guest.name, verb, named))

    @routes.post("/requeue")
    def requeue(guest: Annotated[Guest, Depends(reader)], body: _Chosen) -> JSONResponse:
        return resolve(guest, "requeue", body)

    @routes.post("/drop")
    def drop(guest: Annotated[Guest, Depends(reader)], body: _Chosen) -> JSONResponse:
        return resolve(guest, "drop", body)

    return routes


def resolved(parts: Parts, by: str, verb: Verb, named: Sequence[Named]) -> Mapping[str, Any]:
    """
    Requeue or drop letters; the log has it before it begins, and what came of each after it.

    So an action whose console was killed on the way is in the log too.

    Raises:
        ConsoleError: the log cannot be written, so nothing was done.
    """
    what = _shortly(named)
    if lacking := _noted(parts, by, verb, [(what, "begun")]):
        msg = f"the log cannot be written ({lacking}), so nothing was done"
        raise ConsoleError(503, msg, "make room in the folder `console.state`, and ask again")
    try:
        told = parts.letters.resolve(verb, named, by)
    except Exception as error:
        _noted(parts, by, verb, [(what, f"failed: {error}")])
        raise
    ends = [(each, str(each["what"])) for each in told["done"]]
    ends += [(each, f"failed: {each['error']}") for each in told["failed"]]
    ended = [(f"{each['part']} {each['place']}", outcome) for each, outcome in ends]
    if lacking := _noted(parts, by, verb, ended):
        note = f"the log is incomplete, because it cannot be written ({lacking})"
        return {**told, "note": note}
    return told


def _noted(parts: Parts, by: str, verb: Verb, deeds: Iterable[tuple[str, str]]) -> str:
    """Note what became of each; return why one of them could not be noted, empty: all are."""
    try:
        for what, outcome in deeds:
            parts.deeds.add(by, verb, what, outcome)
    except OSError as error:
        _log.warning("console.state: the log cannot be written: %s", error)
        return error.strerror or type(error).__name__
    return ""


_FEW = 3


def _shortly(named: Sequence[Named]) -> str:
    shown = ", ".join(f"{each.part} {each.place}" for each in named[:_FEW])
    return shown if len(named) <= _FEW else f"{shown} and {len(named) - _FEW} more"


def _errors(app: FastAPI) -> None:
    @app.exception_handler(DovecoteError)
    def of_ours(_: Request, error: DovecoteError) -> JSONResponse:
        match error:
            case ConsoleError():
                more = {"www-authenticate": "Bearer"} if error.status == _NO_TOKEN else None
                return _said(error.status, error.error, error.todo, more)
            case BadSettings():
                return _said(422, str(error), "correct the filter, and ask again")
            case _:
                return _said(503, str(error), "see the sources in /api/flow, and ask again")

    @app.exception_handler(RequestValidationError)
    def of_request(_: Request, found: RequestValidationError) -> JSONResponse:
        first = found.errors()[0]
        where = ".".join(str(each) for each in first["loc"][1:])
        what = words(first["type"], first["msg"])
        error = f"{where}: {what}" if where else what
        return _said(422, error, "correct the request, and ask again")

    @app.exception_handler(HTTPException)
    def of_http(_: Request, error: HTTPException) -> JSONResponse:
        return _said(error.status_code, str(error.detail), "see docs/console.md for the API")


_NO_TOKEN = 401


def _said(
    status: int, error: str, todo: str, more: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": error, "todo": todo}, status, dict(more or {}))


def moment(value: datetime | None) -> str | None:
    """Return a time as the API has it."""
    return None if value is None else value.isoformat()


def as_json(told: object) -> bytes:
    """Return JSON without needless spaces."""
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
