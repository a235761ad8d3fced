"""The answers of the console's API, as the page gets them; times are ISO 8601, UTC."""

from typing import Literal, TypeAlias, TypedDict

StateName: TypeAlias = Literal[
    "working",
    "idle",
    "standby",
    "starting",
    "behind",
    "paused",
    "draining",
    "failing",
    "stalled",
    "unknown",
]

NodeKind: TypeAlias = Literal[
    "outbox", "relay", "topic", "consumer", "spark", "push", "subscription"
]


class LagShape(TypedDict):
    """The events that wait; None where it is not known."""

    events: int | None
    seconds: float | None


class NodeShape(TypedDict):
    """One part in the picture."""

    id: str
    kind: NodeKind
    name: str
    state: StateName
    since: str
    """When the state began, as far as the console saw it."""
    reason: str
    rate: float | None
    """Events a second."""
    lag: LagShape | None
    role: str
    """A topic is `retry`, `dead`, `progress` or empty; a relay is `active` or `standby`."""
    group: str | None
    """The id of the part that it belongs to."""
    facts: list[tuple[str, str]]


EdgeShape = TypedDict("EdgeShape", {"from": str, "to": str, "rate": float | None})
"""Events go from one part to another."""


class TroubleShape(TypedDict):
    """One thing that is not well, and what to do about it."""

    part: str
    state: StateName
    since: str
    title: str
    todo: str
    link: str


class SourceShape(TypedDict):
    """One source that the console asks."""

    part: str
    ok: bool
    error: str
    at: str | None
    """When it last answered."""


class FlowShape(TypedDict):
    """The whole picture; the troubles are worst first."""

    at: str
    every: float
    write: bool
    history: Literal["own", "prometheus"]
    nodes: list[NodeShape]
    edges: list[EdgeShape]
    troubles: list[TroubleShape]
    counts: dict[str, int]
    sources: list[SourceShape]


class ProcessShape(TypedDict):
    """One process of a part, as its `/readyz` tells."""

    url: str
    state: StateName
    role: str
    reason: str
    at: str | None


class TableShape(TypedDict):
    """A table of a part's page."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class FindingShape(TypedDict):
    """One finding of the doctor."""

    level: Literal["ok", "warn", "fail"]
    text: str
    todo: str


class PartShape(TypedDict):
    """One part's page."""

    node: NodeShape
    processes: list[ProcessShape]
    tables: list[TableShape]
    doctor: list[FindingShape] | None


class SeriesShape(TypedDict):
    """One line of a chart; points are pairs of seconds since 1970 and a value."""

    name: str
    unit: str
    points: list[tuple[float, float]]


class DeedShape(TypedDict):
    """One action of an operator, and what came of it."""

    at: str
    by: str
    action: str
    what: str
    outcome: str


class MeShape(TypedDict):
    """The caller, and what it may do."""

    name: str
    rights: list[str]
    needs_token: bool
