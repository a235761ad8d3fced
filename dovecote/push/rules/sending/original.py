"""Subscriptions in the field names of Queue over HTTP, which its clients send and read."""

from datetime import timedelta
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from dovecote.push.rules.subscription.fields import Headers, Model, Partition
from dovecote.push.rules.subscription.sections import WithBody, WithoutBody
from dovecote.push.rules.subscription.subscription import Subscription, subscription

_MILLISECOND = timedelta(milliseconds=1)
_YEAR = 31_536_000_000

Milliseconds: TypeAlias = Annotated[int, Field(ge=0, le=_YEAR)]


class OriginalGroup(Model):
    """A consumer group."""

    id: Annotated[str, Field(min_length=1, max_length=200)]


class OriginalConfig(Model):
    """How the partitions of a topic are processed."""

    concurrencyFactor: Annotated[int, Field(ge=1, le=100_000)] = 1  # noqa: N815  # its clients' name
    autoCommitPeriodMs: Milliseconds = 0  # noqa: N815  # its clients' name
    loadFactor: Annotated[float, Field(ge=1, le=100)] = 2.0  # noqa: N815  # its clients' name

    def order(self) -> dict[str, Any]:
        return {
            "concurrency_factor": self.concurrencyFactor,
            "auto_commit_period": f"{self.autoCommitPeriodMs}ms",
            "load_factor": self.loadFactor,
        }


class OriginalTopic(Model):
    """A topic, or with `pattern` the topics of a regular expression."""

    name: Annotated[str, Field(min_length=1, max_length=500)]
    pattern: bool = False
    partitions: (
        Annotated[tuple[Partition, ...], Field(strict=False, min_length=1, max_length=10_000)]
        | None
    ) = None
    config: OriginalConfig | None = None


class OriginalMethod(Model):
    """Where requests go, and how errors are treated."""

    type: Literal["http"] = "http"
    uri: Annotated[str, Field(max_length=2048)]
    method: WithBody | WithoutBody = "POST"
    queryParamKey: Annotated[str, Field(max_length=100)] = "message"  # noqa: N815  # its clients' name
    charset: Annotated[str, Field(max_length=40)] = "UTF-8"
    additionalHeaders: Headers = Field(default_factory=dict)  # noqa: N815  # its clients' name
    delayOnErrorMs: Milliseconds | None = None  # noqa: N815  # its clients' name
    retryBeforeCommit: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None  # noqa: N815  # its clients' name

    @property
    def retry(self) -> dict[str, Any] | None:
        """Its settings for retries; None: it has none."""
        if self.delayOnErrorMs is None and self.retryBeforeCommit is None:
            return None
        delay = self.delayOnErrorMs or 0
        return {"type": "fixed", "delay": f"{delay}ms", "resends": self.retryBeforeCommit or 0}


class OriginalSubscription(Model):
    """The body of `POST /broker/subscription`."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$")]
    group: OriginalGroup
    broker: Annotated[str, Field(max_length=100)] = "default"
    topics: Annotated[
        tuple[OriginalTopic, ...], Field(strict=False, min_length=1, max_length=1000)
    ]
    subscriptionMethod: OriginalMethod  # noqa: N815  # its clients' name

    @model_validator(mode="after")
    def _pattern_is_alone(self) -> Self:
        if any(each.pattern for each in self.topics) and len(self.topics) > 1:
            msg = "a pattern cannot be combined with other topics"
            raise ValueError(msg)
        if len({each.partitions is None for each in self.topics}) > 1:
            msg = "either all topics name their partitions, or none does"
            raise ValueError(msg)
        return self

    @property
    def key(self) -> str:
        """The id of the matching subscription; one id here may occur in several groups."""
        return f"{self.id}_{self.group.id}"

    def read(self) -> Subscription:
        """
        Return the subscription that it describes.

        Raises:
            ValidationError: there is no such subscription here.
        """
        method = self.subscriptionMethod
        data = {
            "id": self.key,
            "consumer": self.id,
            "group": self.group.id,
            "broker": self.broker,
            **_source(self.topics),
            "endpoint": {
                "url": method.uri,
                "method": method.method,
                "query_param_key": method.queryParamKey,
                "charset": method.charset,
                "detect_json": False,  # its clients' endpoints expect text
                "headers": method.additionalHeaders,
            },
            "metadata_headers": True,
            "order": _order(self.topics),
        }
        if (retry := method.retry) is not None:
            data["retry"] = retry
        return subscription(data)


def _source(topics: tuple[OriginalTopic, ...]) -> dict[str, Any]:
    if topics[0].pattern:
        return {"pattern": topics[0].name}
    if topics[0].partitions is not None:
        return {
            "partitions": [{"topic": each.name, "numbers": each.partitions} for each in topics]
        }
    return {"topics": [each.name for each in topics]}


def _order(topics: tuple[OriginalTopic, ...]) -> dict[str, Any]:
    configs = [each.config for each in topics]
    if not any(configs):
        return {"type": "per_key"}
    said = [each or OriginalConfig() for each in configs]
    order = {"type": "per_partition", **said[0].order()}
    if len(set(said)) > 1:
        order["topics"] = {
            each.name: config.order() for each, config in zip(topics, said, strict=True)
        }
    return order


def written(found: Subscription) -> dict[str, Any]:
    """
    Return a subscription in those names, its secrets masked.

    It leaves out what they have no name for: signatures, formats, limits, order by key.
    """
    endpoint = found.model_dump(mode="json")["endpoint"]
    method: dict[str, Any] = {
        "type": "http",
        "uri": endpoint["url"],
        "method": endpoint["method"],
        "queryParamKey": endpoint["query_param_key"],
        "charset": endpoint["charset"],
        "additionalHeaders": endpoint["headers"],
    }
    if found.retry.type == "fixed":
        method["delayOnErrorMs"] = found.retry.delay // _MILLISECOND
        method["retryBeforeCommit"] = found.retry.resends
    return {
        "id": found.consumer or found.id,
        "group": {"id": found.group_id},
        "broker": found.broker,
        "topics": _topics(found),
        "subscriptionMethod": method,
    }


def _topics(found: Subscription) -> list[dict[str, Any]]:
    if found.pattern is not None:
        named: list[dict[str, Any]] = [{"name": found.pattern, "pattern": True}]
    else:
        named = [{"name": name} for name in found.topics]
        named += [
            {"name": each.topic, "partitions": list(each.numbers)} for each in found.partitions
        ]
    if found.order.type == "per_key":
        return named
    for each in named:
        config = found.order.of(each["name"])
        each["config"] = {
            "concurrencyFactor": config.concurrency_factor,
            "autoCommitPeriodMs": config.auto_commit_period // _MILLISECOND,
            "loadFactor": config.load_factor,
        }
    return named
