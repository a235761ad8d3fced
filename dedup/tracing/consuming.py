"""Make the spans of a consumer besides those of its handler."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from opentelemetry.trace import Link, Span, SpanKind

from dedup.rules.lanes.lanes import Stretch
from dedup.rules.record import Record
from dedup.serving.handover import Batch
from dedup.tracing.handling import about, traced, traced_together
from outbox.tracing import conventions as names
from outbox.tracing.spans import (
    Spans,
    failed,
    links_of,
    only_span,
    went_wrong,
    where_from,
)

_OF_POLICY = frozenset({"filtered", "superseded", "duplicate"})
"""The reasons for which a record is skipped before a handler sees it."""

_MOST_LOOKED_AT = 500


class ConsumerSpans:
    """Makes the spans of one consumer; its methods may be called from any thread."""

    def __init__(self, part: str, group: str) -> None:
        self._spans, self._group = Spans(part), group

    @staticmethod
    def now() -> int:
        """Return the time in nanoseconds since 1970."""
        return time.time_ns()

    def handling(self, handle: Callable[..., Any], *, together: bool) -> Callable[..., Any]:
        """Return a handler of a record (or of several) that runs inside a span."""
        wrap: Any = traced_together if together else traced
        wrapped: Callable[..., Any] = wrap(handle, self._spans, self._group)
        return wrapped

    def polled(
        self, began: int, count: int, batches: Iterable[tuple[Stretch[Record], Batch]]
    ) -> None:
        """Make the span of a poll that began at `began`, as `now` says, and found records."""
        found = list(islice(_records(batches), _MOST_LOOKED_AT))
        topics = {record.topic for record in found}
        self._spans.start(
            "poll",
            "receive",
            SpanKind.CLIENT,
            destination=topics.pop() if len(topics) == 1 else "",
            attributes={names.GROUP: self._group, names.COUNT: count},
            links=links_of(record.headers for record in found),
            began=began,
        ).end()

    def skipped(self, record: Record, reason: str) -> None:
        """Make the span of a record that its policy or filter has skipped, in its trace."""
        if reason not in _OF_POLICY or (origin := where_from(record.headers)) is None:
            return
        span = self._spans.start(
            "process",
            "process",
            SpanKind.CONSUMER,
            destination=record.topic,
            attributes={names.PARTITION: str(record.partition), names.GROUP: self._group},
            context=only_span(origin),
            links=(Link(origin),),
        )
        said = {names.OUTCOME: "skipped", names.REASON: reason}
        if span.is_recording():
            self._spans.tell(span, {**about(record, self._spans), **said})
        span.end()

    @contextmanager
    def setting_aside(
        self, record: Record, topic: str, *, outcome: str, attempt: int, reason: str
    ) -> Iterator[None]:
        """
        Yield inside the span of a copy that goes to a retry topic or to the dead letters.

        The copy keeps the context of its event, so all attempts are side by side in one trace.
        """
        origin = where_from(record.headers)
        span = self._spans.start(
            "send",
            "send",
            SpanKind.CLIENT,
            destination=topic,
            attributes={names.OUTCOME: outcome, names.ATTEMPT: attempt},
            context=None if origin is None else only_span(origin),
            links=() if origin is None else (Link(origin),),
        )
        if span.is_recording():
            found = about(record, self._spans)
            said: names.Attributes = {names.REASON: reason[: names.MOST_TEXT]}
            said |= {key: found[key] for key in (names.MESSAGE, names.KEY) if key in found}
            self._spans.tell(span, said)
        try:
            yield
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()

    def committing(self, places: Collection[tuple[str, int, int]]) -> "Committing":
        """Begin the span of a commit of offsets: topic, partition and the offset after it."""
        topics = {topic for topic, _, _ in places}
        said: names.Attributes = {names.GROUP: self._group}
        if len(places) == 1:
            ((_, partition, offset),) = places
            said |= {names.PARTITION: str(partition), names.OFFSET: offset}
        return Committing(
            self._spans.start(
                "commit",
                "settle",
                SpanKind.CLIENT,
                destination=topics.pop() if len(topics) == 1 else "",
                attributes=said,
            )
        )


class Committing:
    """The span of a commit, until the broker has answered."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, error: str | None = None) -> None:
        """End the span; with `error`, a name of Kafka's, as a failure."""
        if error is not None:
            went_wrong(self._span, error, error)
        self._span.end()


def _records(batches: Iterable[tuple[Stretch[Record], Batch]]) -> Iterator[Record]:
    for stretch, batch in batches:
        for found in batch.values():
            yield from found if stretch.read is None else stretch.read(found)
