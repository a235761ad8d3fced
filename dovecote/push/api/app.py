"""The REST API of `dovecote push serve`, which describes itself with OpenAPI."""

import json
from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute, APIRouter
from fastapi.security import HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from dovecote.process import strict_json
from dovecote.push.api import answers
from dovecote.push.api.access import Access, Safe
from dovecote.push.api.answers import Most, Replay, errors
from dovecote.push.api.control import Control
from dovecote.push.api.dead import Chosen
from dovecote.push.errors import Away, Conflict, NoSuchSubscription, RequestRefused
from dovecote.push.rules.sending.original import OriginalSubscription
from dovecote.push.rules.subscription.subscription import Subscription, problems, said
from outbox.errors import DovecoteError

Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]

_STATUS: Mapping[type[Exception], int] = {
    NoSuchSubscription: 404,
    Conflict: 409,
    RequestRefused: 422,
    Away: 503,
}


def application(
    control: Control, *extra: APIRouter, tokens: Mapping[str, str], max_body: int
) -> ASGIApp:
    """Return the API and the routes of `extra`, open to callers with one of the tokens."""
    app = FastAPI(
        title="Dovecote push",
        version=version("dovecote"),
        summary="Kafka to HTTP endpoints: in order per key, signed, durable.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    bearer = HTTPBearer(auto_error=False, description="A token; needed where there are any.")
    described = [Depends(bearer)]  # `Access` checks it, before anything else is read
    app.include_router(_subscriptions(control), dependencies=described)
    app.include_router(_changes(control), dependencies=described)
    app.include_router(_dead_letters(control), dependencies=described)
    app.include_router(_original(control), dependencies=described)
    for each in extra:
        app.include_router(each)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(DovecoteError, _failed)
    app.add_exception_handler(HTTPException, _refused)
    return Safe(Access(app, tokens=tokens, max_body=max_body))


class _Body(Request):
    async def json(self) -> Any:  # noqa: ANN401  # whatever the caller has sent
        try:
            return strict_json.loads(await self.body())
        except json.JSONDecodeError:
            raise  # FastAPI reports it
        except ValueError as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None


class _Strict(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            return await handle(_Body(request.scope, request.receive))

        return read


def _subscriptions(control: Control) -> APIRouter:
    router = APIRouter(route_class=_Strict, tags=["subscriptions"])

    @router.post(
        "/subscriptions",
        status_code=201,
        response_model=answers.Details,
        responses={200: {"model": answers.Details}, **errors(409)},
    )
    def subscribe(body: Subscription) -> JSONResponse:
        """Create a subscription; repeating the request changes nothing, and answers 200."""
        told, is_new = control.create(body)
        return JSONResponse(told, 201 if is_new else 200)

    @router.get("/subscriptions", response_model=list[answers.Details], responses=errors())
    def list_subscriptions() -> JSONResponse:
        """Return all subscriptions, and the results of each."""
        return JSONResponse(control.all())

    @router.get("/subscriptions/{id}", response_model=answers.Details, responses=errors(404))
    def get_subscription(id: Id) -> JSONResponse:  # noqa: A002  # as the path says it
        """Return one subscription, and its results."""
        return JSONResponse(control.get(id))

    @router.put("/subscriptions/{id}", response_model=answers.Details, responses=errors(404))
    def replace_subscription(id: Id, body: Subscription) -> JSONResponse:  # noqa: A002
        """Replace a subscription, including its secrets; its group continues where it is."""
        if body.id != id:
            msg = f"the body says id {body.id!r}, and the path {id!r}"
            raise RequestRefused(msg)
        return JSONResponse(control.replace(body))

    @router.delete("/subscriptions/{id}", response_model=answers.Summary, responses=errors(404))
    def unsubscribe(id: Id) -> JSONResponse:  # noqa: A002
        """Delete a subscription; requests in flight are finished."""
        return JSONResponse(control.delete(id))

    return router


def _changes(control: Control) -> APIRouter:
    router = APIRouter(route_class=_Strict, tags=["subscriptions"])

    @router.post(
        "/subscriptions/{id}/pause", response_model=answers.Summary, responses=errors(404)
    )
    def pause(id: Id) -> JSONResponse:  # noqa: A002
        """Stop deliveries until the subscription is resumed."""
        return JSONResponse(control.pause(id))

    @router.post(
        "/subscriptions/{id}/resume", response_model=answers.Summary, responses=errors(404)
    )
    def resume(id: Id) -> JSONResponse:  # noqa: A002
        """Deliver again, from where it stopped; also enables a disabled subscription."""
        return JSONResponse(control.resume(id))

    @router.post(
        "/subscriptions/{id}/replay", response_model=answers.Moved, responses=errors(404, 409)
    )
    def replay(id: Id, body: Replay) -> JSONResponse:  # noqa: A002
        """Continue from another position: a time, offsets, the beginning or the end."""
        return JSONResponse(control.replay(id, body.start))

    @router.get(
        "/subscriptions/{id}/attempts",
        response_model=list[answers.Attempt],
        responses=errors(404),
    )
    def attempts(id: Id) -> JSONResponse:  # noqa: A002
        """Return the last requests, newest first, with the beginning of each answer."""
        return JSONResponse(control.attempts(id))

    return router


def _dead_letters(control: Control) -> APIRouter:
    router = APIRouter(route_class=_Strict, tags=["dead letters"])

    @router.get("/subscriptions/{id}/dead", response_model=answers.Letters, responses=errors(404))
    def dead_letters(id: Id, limit: Annotated[Most, Query()] = 50) -> JSONResponse:  # noqa: A002
        """Return dead letters that are neither requeued nor dropped."""
        return JSONResponse(control.dead(id, limit))

    @router.get(
        "/subscriptions/{id}/dead/{event}",
        response_model=answers.WholeLetter,
        responses=errors(404),
    )
    def dead_letter(
        id: Id,  # noqa: A002
        event: Annotated[str, Path(min_length=1, max_length=500)],
    ) -> JSONResponse:
        """Return one dead letter whole, including its headers and value."""
        return JSONResponse(control.dead_letter(id, event))

    @router.post(
        "/subscriptions/{id}/dead/requeue",
        response_model=list[answers.Resolved],
        responses=errors(404),
    )
    def requeue(id: Id, body: Chosen) -> JSONResponse:  # noqa: A002
        """Deliver dead letters again, to this subscription alone, with all their attempts."""
        return JSONResponse(control.requeue(id, body))

    @router.post(
        "/subscriptions/{id}/dead/drop",
        response_model=list[answers.Resolved],
        responses=errors(404),
    )
    def drop(id: Id, body: Chosen) -> JSONResponse:  # noqa: A002
        """Drop dead letters from the list."""
        return JSONResponse(control.drop(id, body))

    return router


def _original(control: Control) -> APIRouter:
    router = APIRouter(route_class=_Strict, tags=["as Queue over HTTP"], prefix="/broker")

    @router.post("/subscription", response_model=OriginalSubscription, responses=errors(409))
    def subscribe(body: OriginalSubscription) -> JSONResponse:
        """Create a subscription; the answer is the body, its tokens masked."""
        return JSONResponse(control.create_originally(body))

    @router.get("/subscription", response_model=list[OriginalSubscription], responses=errors())
    def list_subscriptions() -> JSONResponse:
        """Return all subscriptions, as far as these field names can express them."""
        return JSONResponse(control.all_originally())

    @router.post("/unsubscribe", response_model=OriginalSubscription, responses=errors(404))
    def unsubscribe(body: OriginalSubscription) -> JSONResponse:
        """Delete the subscription with the id and the group of this body."""
        return JSONResponse(control.delete_originally(body))

    return router


def _error(status: int, error: str, found: list[tuple[str, str]] | None = None) -> JSONResponse:
    told = [{"path": path, "message": words} for path, words in found or ()]
    return JSONResponse({"error": error, "problems": told}, status)


def _invalid(_: Request, error: Exception) -> JSONResponse:
    match error:
        case ValidationError():
            found = problems(error)
        case RequestValidationError():
            told = [(each["loc"][1:], each["type"], each["msg"]) for each in error.errors()]
            if any(kind == "json_invalid" for _, kind, _ in told):
                return _error(400, "the body is not JSON")
            found = said(told)
        case _:
            raise error
    text = "; ".join(f"{path}: {words}" if path else words for path, words in found)
    return _error(422, text, found)


def _failed(_: Request, error: Exception) -> JSONResponse:
    return _error(_STATUS.get(type(error), 503), str(error))


def _refused(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    answer = _error(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer
