"""Each route of the application has a right that it needs, and the document says the same."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from dovecote.push.api.access import Access, Safe
from dovecote.push.api.app import application
from dovecote.push.api.control import Control
from dovecote.push.api.routing import require_needs, router
from dovecote.push.api.web import metrics, page
from dovecote.push.rules.access.routes import NEEDS, is_audited, lacking
from dovecote.push.rules.access.scope import NOBODY, RIGHTS, everything
from tests.support.documents import ROOT, code_spans, table


def flat(routes: Iterable[Any]) -> Iterator[Route]:
    for each in routes:
        if isinstance(each, Route):
            yield each
        else:
            yield from flat(each.original_router.routes)


def routes() -> list[Route]:
    extra = page(), metrics(CollectorRegistry())
    made = application(
        cast("Control", None), *extra, tokens=[], max_body=1_000, note=lambda _: None
    )
    assert isinstance(made, Safe)
    checked = made._app
    assert isinstance(checked, Access)
    return list(flat(cast("FastAPI", checked._app).routes))


def methods(route: Route) -> set[str]:
    return (route.methods or set()) - {"HEAD"}


def test_the_table_of_rights_has_the_routes_of_the_application_and_no_others() -> None:
    found = {(method, each.path) for each in routes() for method in methods(each)}
    assert found == NEEDS.keys()


def test_a_route_without_a_right_keeps_the_application_from_starting() -> None:
    unknown = router()
    unknown.get("/subscriptions/{id}/secrets")(lambda: None)
    known = router()
    known.get("/subscriptions")(lambda: None)
    require_needs(known.routes)
    for wrong in (
        unknown.routes,
        [Route("/subscriptions", lambda _: None)],
        [Route("/subscriptions/{id}", lambda _: None, methods=["GET", "PUT"])],
    ):
        with pytest.raises(RuntimeError, match="has no right in `NEEDS`, or does not check it"):
            require_needs(wrong)


def test_routes_that_change_something_need_more_than_reading() -> None:
    for (method, path), need in NEEDS.items():
        assert method == "GET" or need in {"write", "operate"}, path


def test_only_the_right_itself_opens() -> None:
    for need in {*NEEDS.values()}:
        assert lacking(everything("ops"), need) == ""
        assert (lacking(NOBODY, need) == "") == (need == "nothing")
    assert {*NEEDS.values()} == {*RIGHTS, "nothing", "sight"}


def test_what_changes_something_and_what_is_refused_is_audited() -> None:
    for method, path in NEEDS:
        assert is_audited(method, path, 200) == (
            method != "GET"
            or path.endswith(("/subscriptions/{id}/dead/{event:path}", "/dead-search"))
        )
        for status in (401, 403, 404):
            assert is_audited(method, path, status)


def test_the_document_has_the_right_of_each_route() -> None:
    told = {
        tuple(route.split(" ", 1)): code_spans(row[0])[0]
        for row in table(ROOT / "docs/push-api.md", "The rights of a token")
        for route in code_spans(row[1])
    }
    needs = {(method, path.replace(":path", "")): need for (method, path), need in NEEDS.items()}
    assert told == {route: need for route, need in needs.items() if need in RIGHTS}
