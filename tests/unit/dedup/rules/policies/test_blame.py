"""A failure is located in the handler's code, whatever it called."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from dedup.retries.plan import Exceptions
from dedup.rules.policies.blame import place
from dedup.rules.policies.policies import Failed, attempt
from dedup.rules.policies.results import NonRetriable


def inner(data: dict[str, int]) -> int:
    return data["b"]


def outer(data: Any) -> Any:
    return inner(data)


def parses(text: Any) -> Any:
    return json.loads(text)


def refuses(_: Any) -> Any:
    msg = "the account is closed"
    raise NonRetriable(msg)


def reason(given: Any, handler: Callable[[Any], Any]) -> str:
    verdict = attempt(given, handler)
    assert isinstance(verdict, Failed)
    return verdict.result.error


def first_line(function: Any) -> int:
    return int(function.__code__.co_firstlineno) + 1


def test_a_failure_names_the_innermost_line_of_the_handlers_own_code() -> None:
    where = f"test_blame.py:{first_line(inner)} in inner"
    assert reason({}, outer) == f"KeyError: 'b' ({where})"


def test_the_line_is_not_that_of_a_library_which_it_called() -> None:
    assert reason("{", parses).endswith(f" (test_blame.py:{first_line(parses)} in parses)")


def test_a_handler_that_is_installed_as_a_library_is_named_all_the_same() -> None:
    assert " (conninfo.py:" in reason("nonsense", conninfo_to_dict)


def test_what_says_it_all_or_was_raised_by_no_handler_has_no_place() -> None:
    assert reason(None, refuses) == "the account is closed"
    assert reason("{", json.loads).endswith("(char 1)")
    assert place(KeyError("b")) is None


def test_a_traceback_is_logged_once_for_each_distinct_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    twice: dict[str, int] = {}
    for given in (twice, twice, None):
        try:
            outer(given)
        except (KeyError, TypeError) as error:
            Exceptions().result(error)

    told = [each for each in caplog.records if each.exc_info]
    assert [each.levelno for each in told] == [logging.WARNING] * 2
    assert "in inner" in caplog.text
