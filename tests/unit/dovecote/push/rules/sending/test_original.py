"""Bodies of Queue over HTTP become subscriptions, and come back as they were."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from dovecote.push.rules.sending.original import OriginalSubscription, written
from dovecote.push.rules.subscription.sections import Fixed, PerPartition
from dovecote.push.rules.subscription.subscription import problems

BODY: dict[str, Any] = {
    "id": "slack",
    "group": {"id": "notifications"},
    "broker": "main",
    "topics": [
        {
            "name": "flights",
            "config": {"concurrencyFactor": 10, "autoCommitPeriodMs": 100, "loadFactor": 2.0},
        }
    ],
    "subscriptionMethod": {
        "type": "http",
        "delayOnErrorMs": 1000,
        "retryBeforeCommit": 10,
        "uri": "https://hooks.example/services/x",
        "method": "POST",
        "queryParamKey": "message",
        "charset": "UTF-8",
        "additionalHeaders": {"Content-Type": "application/json"},
    },
}


def changed(**method: Any) -> dict[str, Any]:
    return {**BODY, "subscriptionMethod": {**BODY["subscriptionMethod"], **method}}


def read(body: dict[str, Any]) -> OriginalSubscription:
    return OriginalSubscription.model_validate(json.loads(json.dumps(body)))


def test_a_body_becomes_a_subscription() -> None:
    found = read(BODY).read()
    assert (found.id, found.group_id, found.broker) == (
        "slack_notifications",
        "notifications",
        "main",
    )
    assert found.consumer_name == "slack_notifications"
    assert found.topics == ("flights",)
    assert isinstance(found.order, PerPartition)
    assert found.order.concurrency_factor == 10
    assert found.order.auto_commit_period.total_seconds() == 0.1
    assert isinstance(found.retry, Fixed)
    assert (found.retry.delay.total_seconds(), found.retry.max_attempts) == (1.0, 11)
    assert found.metadata_headers


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        {**BODY, "topics": [{"name": "a"}, {"name": "b"}]},
        {**BODY, "topics": [{"name": "a.*", "pattern": True}]},
        {**BODY, "topics": [{"name": "a", "partitions": [0, 2]}]},
        {
            **BODY,
            "topics": [
                {
                    "name": name,
                    "config": {
                        "concurrencyFactor": factor,
                        "autoCommitPeriodMs": 0,
                        "loadFactor": 2.0,
                    },
                }
                for name, factor in (("a", 1), ("b", 5))
            ],
        },
        changed(method="GET", queryParamKey="text", charset="ISO-8859-1"),
    ],
)
def test_what_was_read_is_written_as_it_was(body: dict[str, Any]) -> None:
    assert written(read(body).read()) == body


def test_without_a_word_about_errors_the_retries_are_ours() -> None:
    method = {"uri": "http://x.example/"}
    found = read({**BODY, "subscriptionMethod": method, "topics": [{"name": "a"}]}).read()
    assert (found.retry.type, found.order.type) == ("backoff", "per_key")
    told = written(found)["subscriptionMethod"]
    assert "delayOnErrorMs" not in told
    assert "retryBeforeCommit" not in told


def test_one_word_about_errors_asks_for_the_original_ones() -> None:
    found = read(changed(delayOnErrorMs=None, retryBeforeCommit=3)).read()
    assert isinstance(found.retry, Fixed)
    assert (found.retry.delay.total_seconds(), found.retry.resends) == (0, 3)


def test_tokens_are_masked_when_it_is_written() -> None:
    found = written(read(changed(additionalHeaders={"Authorization": "Bearer x"})).read())
    assert found["subscriptionMethod"]["additionalHeaders"] == {"Authorization": "********"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "id"),
        (changed(uri=5), "subscriptionMethod.uri"),
        (changed(colour="red"), "subscriptionMethod.colour"),
        (
            {**BODY, "topics": [{"name": "a", "config": {"concurrencyFactor": 0}}]},
            "topics.0.config.concurrencyFactor",
        ),
        ({**BODY, "topics": [{"name": "a", "pattern": True}, {"name": "b"}]}, ""),
        ({**BODY, "topics": [{"name": "a", "partitions": [1]}, {"name": "b"}]}, ""),
    ],
)
def test_what_is_wrong_is_said_where_it_is(body: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(body)
    assert path in dict(problems(caught.value))
