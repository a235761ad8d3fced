"""Names and patterns of topics: they decide what is read, and they stop nothing."""

import time
from typing import Any

import pytest
from pydantic import ValidationError

from dedup.consumer import Consumer
from dedup.retries.backoff import Backoff
from dedup.retries.plan import Plan, Tier
from dedup.rules.topics import matched, matcher, written_out
from dedup.serving.retries import Retries
from dedup.settings.consumer import ConsumerSettings
from dovecote.push.rules.subscription.subscription import Subscription, subscription
from outbox.errors import BadSettings

ENDPOINT = {"url": "https://example.com/"}
LONG = "x" * 100
PATTERNS = ["(", "a)|(b", "a{3", "[", "((a{1,255}){1,255}){1,255}", "(?!a).*", r"(a)\1"]


def consumer(**given: Any) -> ConsumerSettings:
    kafka = {"bootstrap.servers": "b:1"}
    return ConsumerSettings.model_validate({"group": "g", "kafka": kafka, **given})


def pushed(**given: Any) -> Subscription:
    return subscription({"id": "s", "endpoint": ENDPOINT, **given})


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders.v1", False),
        (r"orders\.v[0-9]+", "orders.v12", True),
        (r"orders\.v\d+", "orders.v12", True),
        (r"orders\.v[0-9]+", "orders-v12", False),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        ("(eu|us)-.*", "us-orders", True),
        (".*rs", "orders", True),
        ("__.*", "__consumer_offsets", False),
        ("dovecote.progress.*", "dovecote.progress.relay", False),
    ],
)
def test_a_pattern_of_push_is_a_topics_whole_name(
    pattern: str, name: str, *, expected: bool
) -> None:
    assert pushed(pattern=pattern).named([name]) == ([name] if expected else [])


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        (["^orders"], ["orders", "orders.v1"]),
        (["^orders$"], ["orders"]),
        ([r"^orders\."], ["orders.v1"]),
        (["^v1|orders$"], ["orders"]),
        (["^eu|us"], ["us-orders"]),
        (["orders"], ["orders"]),
        (["later", "^orders"], ["later", "orders", "orders.v1"]),
        (["^.*"], ["my-orders", "orders", "orders.v1", "us-orders"]),
        (["^orders", "orders"], ["orders", "orders.v1"]),
    ],
)
def test_a_pattern_of_a_consumer_is_the_beginning_of_a_name(
    entries: list[str], found: list[str]
) -> None:
    there = ["orders", "orders.v1", "us-orders", "my-orders", "__consumer_offsets"]
    assert matched(consumer(topics=entries).topics, there) == found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="regular expression"):
        pushed(pattern=pattern)
    with pytest.raises(ValidationError, match="regular expression"):
        consumer(topics=[f"^{pattern}"])


@pytest.mark.parametrize("pattern", ["^orders", "^a|b.*", r"^orders\.*", "^orders.+"])
def test_a_pattern_that_a_consumer_reads_otherwise_is_refused_by_push(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"leave it out, and end with \.\*"):
        pushed(pattern=pattern)


@pytest.mark.parametrize("pattern", ["^orders$", "^orders.*", r"^orders\..*"])
def test_what_consumer_and_push_read_alike_is_taken_with_its_anchor(pattern: str) -> None:
    there = ["orders", "orders.v1", "xorders", "orders-"]
    assert pushed(pattern=pattern).named(there) == matched([pattern], there) != []


@pytest.mark.parametrize("pattern", ["([a-z.]+)+!", "(.*.*.*.*.*.*)*!", "((x|x)+)+y"])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    assert not matcher(f"^{pattern}")(LONG)
    subscription({"id": LONG, "pattern": pattern, "endpoint": ENDPOINT})
    assert time.process_time() - began < 5


FREEZING = [
    "((x{0,120})*){0,120}",
    "[(?<]((x{0,120})*){0,120}[>]?",
    "[]]?((x{0,120})*){0,120}[)]?",
    "((([a-z.]?){0,30}){0,30}){0,30}y",
    "(x?){ 5000 }y",
    "(?x)x{0,1# }\n20}",
]


@pytest.mark.parametrize("pattern", FREEZING)
def test_a_pattern_that_is_long_with_its_repetitions_written_out_is_refused_at_once(
    pattern: str,
) -> None:
    began = time.process_time()
    with pytest.raises(ValidationError, match="regular expression that can be taken"):
        pushed(pattern=pattern)
    with pytest.raises(ValidationError, match="regular expression that can be taken"):
        consumer(topics=[f"^{pattern}"])
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (r"orders\.v[0-9]+", 9 + 1),
        ("(ab){3}", 9),
        ("(ab){2,}", 6),
        ("(ab){0,7}", 21),
        ("x{0}", 1),
        ("[]x{9}]{2}", 2),
        ("[^]x{9}]{2}", 2),
        ("[a[b]{9}]{2}", 2),
        (r"[\]{9}]{2}", 2),
        (r"\{{3}", 3),
        (r"\p{Greek}{7}", 7),
        ("(?i:a){3}", 6),
        ("(?P<x>a|b){2}", 8),
    ],
)
def test_repetitions_are_written_out(pattern: str, parts: int) -> None:
    assert written_out(pattern) == parts
    assert matcher(f"^{pattern}") is not None


def test_a_name_is_judged_once_however_often_topics_are_listed() -> None:
    there = [f"{'x' * 200}{number}" for number in range(1_000)]
    entries = ["^(([a-z]?){12}){12}y"]
    assert matched(entries, there) == []
    began = time.process_time()
    for _ in range(100):
        assert matched(entries, there) == []
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topics": ["new orders"]}, "is not a topic's name"),
        ({"topics": [""]}, "is not a topic's name"),
        ({"topics": [".."]}, "is not a topic's name"),
        ({"topics": ["orders*"]}, "a pattern begins with"),
        ({"topics": ["a", "b", "a"]}, "'a' is there twice"),
        ({"topics": ["a"], "group": ""}, "at least 1 character"),
        ({"topics": ["a"], "partitions": {"a": [0, 1, 0]}}, "a partition of a twice"),
        ({"topics": ["__consumer_offsets"]}, "a record for each commit"),
    ],
)
def test_what_the_client_refuses_or_never_ends_is_refused_in_the_settings(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        consumer(**given)


@pytest.mark.parametrize("topics", [["a", "dead"], ["^d"], ["^.*"], ["later"], ["^lat.*"]])
def test_a_consumer_does_not_read_what_it_writes(topics: list[str]) -> None:
    retries = {"dead_letter_topic": "dead", "tiers": [{"topic": "later"}]}
    with pytest.raises(ValidationError, match="cannot read what it writes"):
        consumer(topics=topics, retries=retries)


@pytest.mark.parametrize("topics", [["a", "dead"], ["^dea"], ["^retr"], ["retry", "^d"]])
def test_nor_what_a_plan_in_code_writes(topics: list[str]) -> None:
    plan = Plan(patience=Backoff(), tiers=[Tier("retry")], dead_letters="dead")
    aside = Retries(plan, None)  # type: ignore[arg-type]  # nothing is sent
    with pytest.raises(BadSettings, match="cannot read what it writes"):
        Consumer(consumer(topics=topics), lambda _: None, aside=aside)
    Consumer(consumer(topics=["a", "retry"]), lambda _: None, aside=aside)


@pytest.mark.parametrize(
    "source",
    [
        {"topics": ["dovecote.push.s.dead"]},
        {"topics": ["__consumer_offsets"]},
        {"partitions": [{"topic": "given.up", "numbers": [0]}]},
        {"pattern": "given.*"},
        {"pattern": ".*"},
    ],
)
def test_nor_does_a_subscription(source: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"cannot read what it writes|for each commit"):
        pushed(**source, **({"dead_letter_topic": "given.up"} if "given" in str(source) else {}))
