"""Put a picture into the shapes of the API: parts, troubles and counts."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from dovecote.console.rules.facts import MINUTE, Samples
from dovecote.console.rules.judging import GREEN, Judged, rank
from dovecote.console.rules.motion import Memory
from dovecote.console.rules.picture import Drawing, Drawn, silent
from dovecote.console.shapes import FlowShape, NodeShape, SourceShape, StateName, TroubleShape

MOST_TROUBLES = 500
"""The worst ones are told; the counts have all."""

_TODO = {
    "Kafka": "start the brokers, or correct `[kafka]` in the console's file",
    "Postgres": "start the server, or correct `dsn` of the outbox in the console's file",
    "push": "start `dovecote push serve`, or correct `url` and `token` in the console's file",
}


def told(drawn: Drawn, since: float) -> NodeShape:
    """Return a part as the API has it."""
    rate = drawn.motion.rate
    return NodeShape(
        id=drawn.id,
        kind=drawn.kind,
        name=drawn.name,
        state=drawn.judged.state,
        since=moment(since),
        reason=drawn.judged.reason,
        rate=None if rate is None else round(rate, 2),
        lag=drawn.lag,
        role=drawn.role,
        group=drawn.group,
        facts=drawn.facts,
    )


def flow(
    drawing: Drawing,
    samples: Samples,
    memory: Memory,
    now: float,
    *,
    every: float,
    write: bool,
    history: Literal["own", "prometheus"],
) -> FlowShape:
    """Return the whole picture as the API has it."""
    nodes = [told(each, memory.since(each.id, now)) for each in drawing.nodes.values()]
    counts = Counter(str(each["state"]) for each in nodes)
    return FlowShape(
        at=moment(now),
        every=every,
        write=write,
        history=history,
        nodes=nodes,
        edges=drawing.edges,
        troubles=troubles(drawing, samples, memory, now),
        counts=dict(counts),
        sources=list(_sources(samples)),
    )


def troubles(drawing: Drawing, samples: Samples, memory: Memory, now: float) -> list[TroubleShape]:
    """Return what is wrong, worst first, and of equals the newest."""
    found = [*_of_sources(samples, now), *_of_parts(drawing, memory, now)]
    found.sort(key=lambda each: each["since"], reverse=True)
    found.sort(key=lambda each: rank(each["state"]))
    return found[:MOST_TROUBLES]


def _of_parts(drawing: Drawing, memory: Memory, now: float) -> Iterator[TroubleShape]:
    for each in drawing.nodes.values():
        judged = each.judged
        # A part that an operator stopped, or that begins, is no trouble; a cause is said once.
        if not _is_wrong(judged) or _is_told(judged.cause, drawing):
            continue
        yield TroubleShape(
            part=each.id,
            state=judged.state,
            since=moment(memory.since(each.id, now)),
            title=judged.reason or judged.state,
            todo=judged.todo or "see its log, and docs/states.md",
            link=f"#/part/{each.id}",
        )


_CALM: frozenset[StateName] = frozenset({"starting", "paused", "draining"})


def _is_wrong(judged: Judged) -> bool:
    return judged.state not in GREEN and judged.state not in _CALM


def _is_told(cause: str, drawing: Drawing) -> bool:
    """Return whether the cause of a part's trouble is a trouble itself: a source, or a part."""
    part = drawing.nodes.get(cause)
    return bool(cause) and (part is None or _is_wrong(part.judged))


def _of_sources(samples: Samples, now: float) -> Iterator[TroubleShape]:
    for name, heard, what in silent(samples):
        late = heard.at is not None and now - heard.at > MINUTE
        if not heard.error and not late:
            continue
        said = heard.error or "it was not heard for a minute"
        # A cluster is no part of the picture.
        link = "#/" if what == "Kafka" else f"#/part/{name}"
        yield TroubleShape(
            part=f"kafka/{name}" if what == "Kafka" else name,
            state="failing" if heard.error else "unknown",
            since=moment(heard.failing or now),
            title=f"{what} does not answer: {said}",
            todo=_TODO[what],
            link=link,
        )


def _sources(samples: Samples) -> Iterator[SourceShape]:
    for name, heard, what in silent(samples):
        yield SourceShape(
            part=f"kafka/{name}" if what == "Kafka" else name,
            ok=not heard.error and heard.at is not None,
            error=heard.error,
            at=None if heard.at is None else moment(heard.at),
        )
    for url, process in samples.processes.items():
        yield SourceShape(
            part=url,
            ok=not process.error and process.at is not None,
            error=process.error,
            at=None if process.at is None else moment(process.at),
        )


def moment(seconds: float) -> str:
    """Return a time as the API has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
