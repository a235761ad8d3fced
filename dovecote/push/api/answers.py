"""The API's answers, as its OpenAPI description has them."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, Field

from dovecote.process.states import State
from dovecote.push.rules.sending.ports import Circuit, Outcome
from dovecote.push.rules.subscription.fields import Model, Partition, Topic
from dovecote.push.rules.subscription.sections import Position
from dovecote.push.rules.subscription.subscription import Subscription


class Problem(BaseModel):
    """One fault in a request."""

    path: str
    """Path of the field, such as `endpoint.url`."""
    message: str


class Error(BaseModel):
    """Why a request failed."""

    error: str
    problems: list[Problem] = []


class Status(BaseModel):
    """Whether a subscription delivers, and if not, why."""

    state: Literal["active", "paused", "disabled"]
    reason: str
    since: AwareDatetime


class Counts(BaseModel):
    """Counts since the subscription was made."""

    delivered: int
    failed: int
    dead: int


class SubscriptionHealth(BaseModel):
    """How the subscription is, from what became of its last requests."""

    state: State
    reason: str
    since: AwareDatetime | None
    """Since when it is so; null: that is not known."""


class Delivery(BaseModel):
    """The reports of the processes that deliver the subscription."""

    processes: int
    trouble: str
    in_flight: int
    lag: int | None
    expired: int
    """Offsets that the topics had deleted before they were delivered."""
    p50_ms: float | None
    p99_ms: float | None
    circuit: Circuit
    last_minute: dict[str, int]
    """Outcomes of the last minute's requests, by the answer's status or `no answer`."""


class Summary(Subscription):
    """A subscription; its secrets are masked."""

    status: Status
    owner: str
    """The owner that the token of its maker has; empty: nobody's."""


class Details(Summary):
    """A subscription, and its results so far."""

    created_at: AwareDatetime
    health: SubscriptionHealth
    version: int
    """Rises with every change of a field."""
    counts: Counts
    delivery: Delivery


class Attempt(BaseModel):
    """One request, and its outcome."""

    subscription: str
    event_id: str
    topic: str
    partition: int
    offset: int
    key: str | None
    number: int
    at: float
    seconds: float
    status: int | None
    outcome: Outcome
    detail: str


class Changes(Model):
    """Fields of a subscription that are to be set."""

    set: Annotated[dict[str, Any], Field(min_length=1, max_length=100)]
    """Values by the paths of fields, such as `limits.rate`; null: back to the default."""
    version: int | None = None
    """The version that is meant: if the subscription has another one, nothing is changed."""


class Skipped(Model):
    """A place that cannot be read; the group steps over the batch that lies there."""

    topic: Topic
    partition: Partition
    offset: Annotated[int, Field(ge=0)]
    by: Annotated[str, Field(min_length=1, max_length=200)] = "unknown"
    """The person that decides."""
    why: Annotated[str, Field(min_length=1, max_length=1_000)]
    """Why the records may be lost."""


class SteppedOver(BaseModel):
    """The note that is kept of offsets that are stepped over."""

    group: str
    topic: str
    partition: int
    first: int
    until: int
    """The offset at which the group goes on."""
    topic_id: str | None
    error: str
    by: str
    at: AwareDatetime
    why: str


class DeadLetter(BaseModel):
    """A record that was given up."""

    id: str
    source: str
    key: str | None
    origin: str
    reason: str
    attempts: int
    died_at: AwareDatetime
    size: int
    place: str
    """Topic, partition and offset of the letter itself."""
    type: str | None
    """The event's type; null: it cannot be read."""


class Resolved(DeadLetter):
    """A dead letter that was delivered again or dropped."""

    left: str | None
    """Why it was not, if it was not."""


class Letters(BaseModel):
    """Dead letters, and how many there are in all."""

    total: int
    letters: list[DeadLetter]


class Sought(BaseModel):
    """The newest dead letters that are meant, and how much was looked at."""

    letters: list[DeadLetter]
    looked: int
    """Records of the dead-letter topic."""
    whole: bool
    """Whether all was looked at that may be meant, or enough was found."""
    oldest: AwareDatetime | None
    """The time of the oldest record that was looked at."""


class WholeLetter(DeadLetter):
    """A record that was given up, with its contents."""

    headers: list[tuple[str, str | None]]
    value: str | None


class Moved(BaseModel):
    """Where a subscription continues: offsets by topic and partition."""

    offsets: dict[str, dict[str, int]]


class AuditEntry(BaseModel):
    """A request that changed something, was refused, or read what a record holds."""

    at: AwareDatetime
    actor: str | None
    """The name of the token; none: no token that is known."""
    refused: bool
    method: str
    path: str
    subscription: str
    status: int
    error: str
    detail: str
    address: str | None
    """Address of the client; none: it is for others to see."""
    forwarded: str | None
    """`X-Forwarded-For`, as it came: any client can claim anything here."""
    times: int


class Replay(Model):
    """The position from which a subscription is to continue."""

    start: Position


Responses: TypeAlias = dict[int | str, dict[str, Any]]


def errors(*statuses: int) -> Responses:
    """Return the descriptions of failures: those of every operation, and `statuses`."""
    why = {
        400: "The body is not JSON.",
        401: "The token is missing or unknown.",
        403: "The token does not allow it, or the host is not one of this server's names.",
        404: "There is no such subscription that the token may see.",
        409: "It conflicts with the present state.",
        413: "The body is too long.",
        422: "It is not valid; `problems` says where.",
        429: "The token has too many requests under way.",
        503: "The database or the broker does not answer.",
    }
    always = {400, 401, 403, 413, 422, 429, 503}
    return {
        status: {"model": Error, "description": why[status]}
        for status in sorted(always | set(statuses))
    }


Most: TypeAlias = Annotated[int, Field(ge=1, le=10_000)]
