"""Patterns of topics: they decide what is read, and they stop nothing."""

import time

import pytest
from pydantic import ValidationError

from dovecote.push.rules.subscription.pattern import whole
from dovecote.push.rules.subscription.subscription import subscription

ENDPOINT = {"url": "https://example.com/"}
LONG = "x" * 100


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders.v1", False),
        (r"orders\.v[0-9]+", "orders.v12", True),
        (r"orders\.v[0-9]+", "orders-v12", False),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        ("(eu|us)-.*", "us-orders", True),
    ],
)
def test_a_pattern_is_a_topics_whole_name(pattern: str, name: str, *, expected: bool) -> None:
    assert whole(pattern)(name) is expected


@pytest.mark.parametrize(
    "pattern", [r"orders-\d+", r"\w+", r"[\w.]+", "(?:a|b)", "(?!a).*", r"\bx"]
)
def test_what_kafka_would_read_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="not known to Kafka"):
        whole(pattern)


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "a{3", "[", "((a{1,255}){1,255}){1,255}"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="regular expression"):
        subscription({"id": "s", "pattern": pattern, "endpoint": ENDPOINT})


@pytest.mark.parametrize("pattern", ["([a-z.]+)+!", "(.*.*.*.*.*.*)*!", "((x|x)+)+y"])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    subscription({"id": LONG, "pattern": pattern, "endpoint": ENDPOINT})
    assert time.process_time() - began < 5
