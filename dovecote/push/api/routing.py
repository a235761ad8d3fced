"""Route a request only if its caller has the right that the route needs, and read its JSON."""

import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route

from dovecote.process import strict_json
from dovecote.push.api.caller import Caller
from dovecote.push.errors import NotPermitted
from dovecote.push.rules.access.routes import NEEDS, lacking


class _Body(Request):
    async def json(self) -> Any:  # noqa: ANN401  # whatever the caller has sent
        try:
            return strict_json.loads(await self.body())
        except json.JSONDecodeError:
            raise  # FastAPI reports it
        except ValueError as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None


async def _whole(request: Request) -> None:
    try:
        await request.body()
    except ClientDisconnect:
        raise HTTPException(400, "the body did not come as a whole") from None


class _Checked(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def permit(request: Request) -> Response:
            caller: Caller = request.state.caller
            caller.route = self.path
            caller.subscription = str(request.path_params.get("id", ""))
            why = lacking(caller.scope, NEEDS[request.method, self.path])
            if why and not caller.is_open:
                raise NotPermitted(why)
            asked = _Body(request.scope, request.receive)
            await _whole(asked)  # first: a client that sends it slowly takes no turn
            async with caller.turns.turn():
                return await handle(asked)

        return permit


def router(*, tag: str | None = None, prefix: str = "") -> APIRouter:
    """Return a router whose routes check rights; without a tag the API does not describe it."""
    return APIRouter(
        route_class=_Checked,
        prefix=prefix,
        tags=None if tag is None else [tag],
        include_in_schema=tag is not None,
    )


def require_needs(routes: Iterable[BaseRoute]) -> None:
    """
    Check that each route is in the table of rights, and checks them.

    Raises:
        RuntimeError: one is not, or does not.
    """
    for route in routes:
        included = getattr(route, "original_router", None)  # as FastAPI keeps included routers
        if included is not None:
            require_needs(included.routes)
            continue
        if not isinstance(route, Route):
            msg = f"{route!r} is no route of the API, so nobody knows the right that it needs"
            raise RuntimeError(msg)  # noqa: TRY004  # of whoever wrote the route
        for method in (route.methods or set()) - {"HEAD"}:
            need = NEEDS.get((method, route.path))
            if need is None or (need != "nothing" and not isinstance(route, _Checked)):
                msg = f"{method} {route.path} has no right in `NEEDS`, or does not check it"
                raise RuntimeError(msg)
