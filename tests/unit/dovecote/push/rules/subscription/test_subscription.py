"""The contents of a subscription, the errors in other contents, and its secrets."""

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from dovecote.push.rules.subscription.fields import MASK
from dovecote.push.rules.subscription.sections import At, Backoff, Fixed, PerPartition, signing_key
from dovecote.push.rules.subscription.subscription import (
    Subscription,
    json_schema,
    problems,
    subscription,
)

V1 = "whsec_" + "A" * 32
LEAST: dict[str, Any] = {"id": "a", "topics": ["t"], "endpoint": {"url": "https://x.example/y"}}


def wrong(**changes: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        subscription({**LEAST, **changes})
    return dict(problems(caught.value))


def test_little_needs_to_be_said() -> None:
    found = subscription(LEAST)
    assert (found.group_id, found.consumer_name) == ("dovecote.push.a", "a_dovecote.push.a")
    assert (found.dead_letters, found.requeued) == (
        "dovecote.push.a.dead",
        "dovecote.push.a.requeued",
    )
    assert found.topics_read() == ["t", "dovecote.push.a.requeued"]
    assert (found.order.type, found.retry.type, found.format) == ("per_key", "backoff", "plain")


def test_everything_survives_being_written_and_read() -> None:
    found = subscription(
        {
            **LEAST,
            "start": {"time": "2026-01-01T00:00:00Z"},
            "endpoint": {
                "url": "https://x.example/y?z=1",
                "headers": {"Authorization": "Bearer b", "X-Token": "env:TOKEN"},
                "timeout": "1500ms",
            },
            "signing": {"secrets": [V1, "file:new"]},
            "order": {
                "type": "per_partition",
                "concurrency_factor": 10,
                "auto_commit_period": "100ms",
                "topics": {"t": {"concurrency_factor": 2, "load_factor": 3}},
            },
            "retry": {"type": "fixed", "delay": "1s", "resends": 10},
            "limits": {"rate": 5.5},
        }
    )
    sealed = found.model_dump(mode="json", context={"seal": lambda text: text[::-1]})
    assert "Bearer b" not in json.dumps(sealed)
    assert subscription(json.loads(json.dumps(sealed)), unseal=lambda text: text[::-1]) == found
    assert isinstance(found.order, PerPartition)
    assert found.order.of("t").concurrency_factor == 2
    assert found.order.of("other").concurrency_factor == 10
    assert isinstance(found.start, At)


def test_secrets_are_in_no_answer_no_repr_and_no_error() -> None:
    found = subscription(
        {
            **LEAST,
            "endpoint": {
                "url": "https://x.example",
                "headers": {"X-Key": "hidden", "Content-Type": "text/plain", "X-Ref": "env:REF"},
            },
            "signing": {"secrets": [V1]},
        }
    )
    told = found.model_dump(mode="json")
    assert told["endpoint"]["headers"] == {
        "X-Key": MASK,
        "Content-Type": "text/plain",
        "X-Ref": "env:REF",
    }
    assert told["signing"] == {"secrets": [MASK]}
    assert "hidden" not in repr(found)
    assert V1 not in repr(found)
    assert "hidden" not in str(wrong(signing={"secrets": ["hidden"]}))
    assert wrong(signing={"secrets": [MASK]})["signing.secrets.0"].startswith(MASK)


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"id": 3}, "id", "text"),
        ({"id": "a/b"}, "id", "pattern"),
        ({"endpoint": {}}, "endpoint.url", "is missing"),
        ({"endpoint": {"url": "ftp://x"}}, "endpoint.url", "is not a URL"),
        ({"endpoint": {"url": "http://[::1"}}, "endpoint.url", "is not a URL"),
        ({"endpoint": {"url": "http://x:99999"}}, "endpoint.url", "is not a URL"),
        ({"endpoint": {"url": "http://u:p@x"}}, "endpoint.url", "Authorization"),
        ({"endpoint": {"url": "http://x/#a"}}, "endpoint.url", "fragment"),
        (
            {"endpoint": {"url": "http://x", "headers": {"Host": "y"}}},
            "endpoint.headers",
            "Host cannot be set",
        ),
        (
            {"endpoint": {"url": "http://x", "headers": {"X": "a\r\nB: c"}}},
            "endpoint.headers",
            "not a value",
        ),
        (
            {"endpoint": {"url": "http://x", "timeout": "0s"}},
            "endpoint.timeout",
            "longer than 0",
        ),
        ({"endpoint": {"url": "http://x", "timeout": 3}}, "endpoint.timeout", "not a duration"),
        ({"endpoint": {"url": "http://x", "charset": "KOI-99"}}, "endpoint.charset", "no charset"),
        ({"endpoint": {"url": "http://x", "charset": "hex"}}, "endpoint.charset", "no charset"),
        ({"endpoint": {"url": "http://x", "colour": 3}}, "endpoint.colour", "no such field"),
        ({"limits": {"max_in_flight": "5"}}, "limits.max_in_flight", "whole number"),
        ({"limits": {"max_in_flight": True}}, "limits.max_in_flight", "whole number"),
        ({"order": {"type": "x"}}, "order", "per_partition"),
        ({"order": {}}, "order", "type"),
        (
            {"order": {"type": "per_partition", "concurrency_factor": 0}},
            "order.concurrency_factor",
            "greater",
        ),
        ({"retry": {"type": "backoff", "base": "1h"}}, "retry", "longer than ceiling"),
        ({"start": "middle"}, "start", "earliest"),
        ({"start": {"time": 5}}, "start.time", "2026-02-01"),
        ({"start": {"time": "2026-01-01"}}, "start.time", "zone"),
        ({"start": {"offsets": {"t": {"x": 1}}}}, "start.offsets.t.x.[key]", "pattern"),
        ({"pattern": "x"}, "", "not topics and pattern"),
        ({"topics": []}, "", "none of them"),
        ({"topics": ["t", "t"]}, "", "twice"),
        ({"topics": [], "pattern": "("}, "", "regular expression"),
        ({"topics": [], "pattern": ".*"}, "", "narrow it"),
        ({"topics": ["dovecote.push.a.dead"]}, "", "cannot read"),
        ({"dead_letter_topic": "__consumer_offsets"}, "", "is no topic for dead letters"),
        ({"dead_letter_topic": "dovecote.progress.orders"}, "", "is no topic for dead letters"),
        ({"dead_letter_topic": "dovecote.push.b.requeued"}, "", "is no topic for dead letters"),
        ({"signing": {"secrets": []}}, "signing.secrets", "must not be empty"),
        ({"signing": {"secrets": ["whsec_short"]}}, "signing.secrets", "whsk_"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(changes: dict[str, Any], path: str, words: str) -> None:
    found = wrong(**changes)
    assert words in found[path], found


def test_no_body_and_a_structure_exclude_each_other() -> None:
    found = wrong(format="cloudevents_structured", endpoint={"url": "http://x", "method": "GET"})
    assert "GET" in found[""]


def test_by_default_only_answers_about_the_record_are_dead_at_once() -> None:
    retry = Backoff()
    assert [s for s in range(300, 600) if retry.is_dead(s)] == [400, 413, 415, 422]
    assert Backoff(dead_statuses=(500,)).is_dead(500)
    assert not Backoff(dead_statuses=(500,)).is_dead(404)


def test_a_fixed_delay_sends_once_more_than_it_resends() -> None:
    assert Fixed(type="fixed", resends=3).max_attempts == 4
    assert Fixed(type="fixed").max_attempts is None
    assert not Fixed(type="fixed").is_dead(404)


def test_a_signing_key_says_what_it_signs() -> None:
    assert signing_key(V1) == ("v1", bytes(24))
    assert signing_key("whsk_" + "A" * 43 + "=") == ("v1a", bytes(32))
    with pytest.raises(ValueError, match="whsec_"):
        signing_key("whsec_" + "A" * 8)


def test_durations_are_written_as_they_are_read() -> None:
    for text in ("250ms", "1.5ms", "90s", "2h", "3m", "0ms"):
        retry = subscription({**LEAST, "retry": {"type": "fixed", "delay": text}}).model_dump(
            mode="json"
        )["retry"]
        assert retry["delay"] == text


def test_the_schema_is_json_and_names_every_field() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == set(Subscription.model_fields)
    assert subscription(LEAST).retry == Backoff(ceiling=timedelta(minutes=5))
