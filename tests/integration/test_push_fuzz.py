"""The API of push answers every request, and never with a 5xx."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok

from dovecote.push.process import Running
from tests.support.fix_stack import MakeTopic, Servers, new_database, new_topics
from tests.support.idle_push import LEAST, TOKEN, Client, idle, installed, push_settings
from tests.support.waiting import patient

_MOST_EXAMPLES = 15
_OURS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def topics(stack: Servers) -> Iterator[MakeTopic]:
    with new_topics(stack) as make:
        yield make


@pytest.fixture(scope="module")
def running(stack: Servers, topics: MakeTopic) -> Iterator[Running]:
    with (
        new_database(stack) as database,
        installed(database) as dsn,
        idle(push_settings(dsn, stack.kafka.bootstrap)) as (found, _),
    ):
        # An existing one, in an existing topic, so that the code after "no such" is tested, too.
        Client(found.at.port)("POST", "/subscriptions", {**LEAST, "id": "0", "topics": [topics()]})
        yield found


def test_no_request_is_answered_with_a_5xx(running: Running) -> None:
    described = schemathesis.openapi.from_url(f"{running.at.url}/openapi.json")
    operations = list(described.get_all_operations())
    assert len(operations) > 10
    for operation in operations:
        assert isinstance(operation, Ok)
        asked(operation.ok().as_strategy())


def asked(cases: SearchStrategy[Any]) -> None:
    @settings(
        max_examples=_MOST_EXAMPLES,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(case=cases)
    def ask(case: Any) -> None:
        case.validate_response(
            case.call(headers=_OURS, timeout=patient(40)), checks=[not_a_server_error]
        )

    ask()
