"""The REST API of `dovecote push serve`, which describes itself with OpenAPI."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRouter
from fastapi.security import HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from dovecote.push.api import answers
from dovecote.push.api.access import Access, Safe
from dovecote.push.api.answers import Most, Replay, errors
from dovecote.push.api.caller import Called, Caller
from dovecote.push.api.control import Control
from dovecote.push.api.dead import Chosen, Searched, Wanted
from dovecote.push.api.routing import require_needs, router
from dovecote.push.errors import (
    Away,
    Busy,
    Conflict,
    NoSuchSubscription,
    NotPermitted,
    RequestRefused,
)
from dovecote.push.rules.access.scope import Scope
from dovecote.push.rules.sending.original import OriginalSubscription
from dovecote.push.rules.subscription.subscription import Subscription, problems, said
from dovecote.push.store.audit import Entry
from outbox.errors import DovecoteError

Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]

_STATUS: Mapping[type[Exception], int] = {
    NotPermitted: 403,
    NoSuchSubscription: 404,
    Conflict: 409,
    RequestRefused: 422,
    Busy: 429,
    Away: 503,
}


def application(
    control: Control,
    *extra: APIRouter,
    tokens: Sequence[tuple[str, Scope]],
    max_body: int,
    note: Callable[[Entry], object],
) -> ASGIApp:
    """
    Return the API and the routes of `extra`, open to callers with one of the tokens.

    A token is given as its hash and what it may do. `note` takes the entries of the audit log.
    """
    app = FastAPI(
        title="Dovecote push",
        version=version("dovecote"),
        summary="Kafka to HTTP endpoints: in order per key, signed, durable.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    bearer = HTTPBearer(auto_error=False, description="A token.")
    described = [Depends(bearer)]  # `Access` checks it, before anything else is read
    app.include_router(_subscriptions(control), dependencies=described)
    app.include_router(_changes(control), dependencies=described)
    app.include_router(_dead_letters(control), dependencies=described)
    app.include_router(_original(control), dependencies=described)
    app.include_router(_audit(control), dependencies=described)
    for each in extra:
        app.include_router(each)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(DovecoteError, _failed)
    app.add_exception_handler(HTTPException, _refused)
    require_needs(app.routes)
    return Safe(Access(app, tokens=tokens, max_body=max_body, note=note))


def _subscriptions(control: Control) -> APIRouter:
    routes = router(tag="subscriptions")

    @routes.post(
        "/subscriptions",
        status_code=201,
        response_model=answers.Details,
        responses={200: {"model": answers.Details}, **errors(409)},
    )
    def subscribe(caller: Called, body: Subscription) -> JSONResponse:
        """Create a subscription; repeating the request changes nothing, and answers 200."""
        told, is_new = control.create(caller, body)
        return JSONResponse(told, 201 if is_new else 200)

    @routes.get("/subscriptions", response_model=list[answers.Details], responses=errors())
    def list_subscriptions(caller: Called) -> JSONResponse:
        """Return all subscriptions, and the results of each."""
        return JSONResponse(control.all(caller))

    @routes.get("/subscriptions/{id}", response_model=answers.Details, responses=errors(404))
    def get_subscription(caller: Called, id: Id) -> JSONResponse:  # noqa: A002  # as the path says it
        """Return one subscription, and its results."""
        return JSONResponse(control.get(caller, id))

    @routes.put("/subscriptions/{id}", response_model=answers.Details, responses=errors(404))
    def replace_subscription(caller: Called, id: Id, body: Subscription) -> JSONResponse:  # noqa: A002
        """Replace a subscription, including its secrets; its group continues where it is."""
        if body.id != id:
            msg = f"the body says id {body.id!r}, and the path {id!r}"
            raise RequestRefused(msg)
        return JSONResponse(control.replace(caller, body))

    @routes.patch(
        "/subscriptions/{id}", response_model=answers.Details, responses=errors(404, 409)
    )
    def change_subscription(caller: Called, id: Id, body: answers.Changes) -> JSONResponse:  # noqa: A002
        """Set single fields of a subscription; secrets that are not given stay as they are."""
        return JSONResponse(control.change(caller, id, body))

    @routes.delete("/subscriptions/{id}", response_model=answers.Summary, responses=errors(404))
    def unsubscribe(caller: Called, id: Id) -> JSONResponse:  # noqa: A002
        """Delete a subscription; requests in flight are finished."""
        return JSONResponse(control.delete(caller, id))

    return routes


def _changes(control: Control) -> APIRouter:
    routes = router(tag="subscriptions")

    @routes.post(
        "/subscriptions/{id}/pause", response_model=answers.Summary, responses=errors(404)
    )
    def pause(caller: Called, id: Id) -> JSONResponse:  # noqa: A002
        """Stop deliveries until the subscription is resumed."""
        return JSONResponse(control.pause(caller, id))

    @routes.post(
        "/subscriptions/{id}/resume", response_model=answers.Summary, responses=errors(404)
    )
    def resume(caller: Called, id: Id) -> JSONResponse:  # noqa: A002
        """Deliver again, from where it stopped; also enables a disabled subscription."""
        return JSONResponse(control.resume(caller, id))

    @routes.post(
        "/subscriptions/{id}/replay", response_model=answers.Moved, responses=errors(404, 409)
    )
    def replay(caller: Called, id: Id, body: Replay) -> JSONResponse:  # noqa: A002
        """Continue from another position: a time, offsets, the beginning or the end."""
        return JSONResponse(control.replay(caller, id, body.start))

    @routes.post(
        "/subscriptions/{id}/skip", response_model=answers.SteppedOver, responses=errors(404)
    )
    def skip(caller: Called, id: Id, body: answers.Skipped) -> JSONResponse:  # noqa: A002
        """Step over a batch that cannot be read; what can be read is never stepped over."""
        return JSONResponse(control.skip(caller, id, body))

    @routes.get(
        "/subscriptions/{id}/attempts",
        response_model=list[answers.Attempt],
        responses=errors(404),
    )
    def attempts(caller: Called, id: Id) -> JSONResponse:  # noqa: A002
        """Return the last requests, newest first, with the beginning of each answer."""
        return JSONResponse(control.attempts(caller, id))

    return routes


def _dead_letters(control: Control) -> APIRouter:
    routes = router(tag="dead letters")

    @routes.get("/subscriptions/{id}/dead", response_model=answers.Letters, responses=errors(404))
    def dead_letters(caller: Called, id: Id, limit: Annotated[Most, Query()] = 50) -> JSONResponse:  # noqa: A002
        """Return dead letters that are neither requeued nor dropped."""
        return JSONResponse(control.dead(caller, id, limit))

    @routes.get(
        "/subscriptions/{id}/dead-newest", response_model=answers.Sought, responses=errors(404)
    )
    def newest_letters(
        caller: Called,
        id: Id,  # noqa: A002
        wanted: Annotated[Wanted, Query()],
    ) -> JSONResponse:
        """Return the newest dead letters that are meant, and how much was looked at."""
        return JSONResponse(control.newest_dead(caller, id, wanted))

    @routes.get(
        "/subscriptions/{id}/dead-search", response_model=answers.Sought, responses=errors(404)
    )
    def search_letters(
        caller: Called,
        id: Id,  # noqa: A002
        wanted: Annotated[Searched, Query()],
    ) -> JSONResponse:
        """Return the newest dead letters for which an expression holds; this is audited."""
        return JSONResponse(control.newest_dead(caller, id, wanted))

    @routes.get(
        "/subscriptions/{id}/dead/{event:path}",
        response_model=answers.WholeLetter,
        responses=errors(404),
    )
    def dead_letter(
        caller: Called,
        id: Id,  # noqa: A002
        event: Annotated[str, Path(min_length=1, max_length=500)],
    ) -> JSONResponse:
        """Return one dead letter whole, by its event's id, its name or its place."""
        return JSONResponse(control.dead_letter(caller, id, event))

    @routes.post(
        "/subscriptions/{id}/dead/requeue",
        response_model=list[answers.Resolved],
        responses=errors(404),
    )
    def requeue(caller: Called, id: Id, body: Chosen) -> JSONResponse:  # noqa: A002
        """Deliver dead letters again, to this subscription alone, with all their attempts."""
        return JSONResponse(control.requeue(caller, id, body))

    @routes.post(
        "/subscriptions/{id}/dead/drop",
        response_model=list[answers.Resolved],
        responses=errors(404),
    )
    def drop(caller: Called, id: Id, body: Chosen) -> JSONResponse:  # noqa: A002
        """Drop dead letters from the list."""
        return JSONResponse(control.drop(caller, id, body))

    return routes


def _original(control: Control) -> APIRouter:
    routes = router(tag="as Queue over HTTP", prefix="/broker")

    @routes.post("/subscription", response_model=OriginalSubscription, responses=errors(409))
    def subscribe(caller: Called, body: OriginalSubscription) -> JSONResponse:
        """Create a subscription; the answer is the body, its tokens masked."""
        return JSONResponse(control.create_originally(caller, body))

    @routes.get("/subscription", response_model=list[OriginalSubscription], responses=errors())
    def list_subscriptions(caller: Called) -> JSONResponse:
        """Return all subscriptions, as far as these field names can express them."""
        return JSONResponse(control.all_originally(caller))

    @routes.post("/unsubscribe", response_model=OriginalSubscription, responses=errors(404))
    def unsubscribe(caller: Called, body: OriginalSubscription) -> JSONResponse:
        """Delete the subscription with the id and the group of this body."""
        return JSONResponse(control.delete_originally(caller, body))

    return routes


def _audit(control: Control) -> APIRouter:
    routes = router(tag="audit")

    @routes.get("/audit", response_model=list[answers.AuditEntry], responses=errors())
    def audit(
        caller: Called,
        limit: Annotated[Most, Query()] = 50,
        subscription: Annotated[str | None, Query(max_length=100)] = None,
    ) -> JSONResponse:
        """Return the last requests that changed something or were refused, newest first."""
        return JSONResponse(control.audit(caller, limit, subscription))

    return routes


def _error(
    request: Request, status: int, error: str, found: Sequence[tuple[str, str]] = ()
) -> JSONResponse:
    caller: Caller = request.state.caller
    caller.error = error
    told = [{"path": path, "message": words} for path, words in found]
    return JSONResponse({"error": error, "problems": told}, status)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    match error:
        case ValidationError():
            found = problems(error)
        case RequestValidationError():
            told = [(each["loc"][1:], each["type"], each["msg"]) for each in error.errors()]
            if any(kind == "json_invalid" for _, kind, _ in told):
                return _error(request, 400, "the body is not JSON")
            found = said(told)
        case _:
            raise error
    text = "; ".join(f"{path}: {words}" if path else words for path, words in found)
    return _error(request, 422, text, found)


def _failed(request: Request, error: Exception) -> JSONResponse:
    found = error.problems if isinstance(error, NotPermitted) else ()
    answer = _error(request, _STATUS.get(type(error), 503), str(error), found)
    if isinstance(error, Busy):
        answer.headers["retry-after"] = "1"
    return answer


def _refused(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    answer = _error(request, error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer
