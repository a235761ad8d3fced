"""Run a consumer's handler inside a span, for one record or for several."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from opentelemetry.trace import Link, SpanKind

from dedup.rules.policies.results import Again, Dead, Done, Retry, Skip, Unavailable
from dedup.rules.policies.signatures import is_awaited
from dedup.rules.record import Record
from outbox import envelope
from outbox.errors import InvalidEvent
from outbox.tracing import conventions as names
from outbox.tracing.spans import Spans, Within, links_of, went_wrong, within

A = TypeVar("A")

_OUTCOMES = {Done: "done", Again: "again", Skip: "skipped", Retry: "retry", Dead: "dead"}


def traced(handle: Callable[[Record], A], spans: Spans, group: str) -> Callable[[Record], A]:
    """Return `handle`, which runs inside the span of its record; an async one stays async."""
    if is_awaited(handle):

        async def handle_awaited(record: Record) -> Any:  # noqa: ANN401  # its answer
            with _Processing(spans, group, record) as about:
                answer = await handle(record)  # type: ignore[misc]  # it is awaited
                about.answered(answer)
            return answer

        return handle_awaited  # type: ignore[return-value]  # an async function, as `handle` is

    def handle_here(record: Record) -> A:
        with _Processing(spans, group, record) as about:
            answer = handle(record)
            about.answered(answer)
        return answer

    return handle_here


def traced_together(
    handle: Callable[[Sequence[Record]], A], spans: Spans, group: str
) -> Callable[[Sequence[Record]], A]:
    """As `traced`, for a handler of several records: its span is linked to all of them."""

    def block(records: Sequence[Record]) -> "_Processing":
        if len(records) == 1:
            return _Processing(spans, group, records[0])
        return _ProcessingMany(spans, group, records)

    if is_awaited(handle):

        async def handle_awaited(records: Sequence[Record]) -> Any:  # noqa: ANN401  # its answer
            with block(records) as about:
                answer = await handle(records)  # type: ignore[misc]  # it is awaited
                about.answered(answer)
            return answer

        return handle_awaited  # type: ignore[return-value]  # an async function, as `handle` is

    def handle_here(records: Sequence[Record]) -> A:
        with block(records) as about:
            answer = handle(records)
            about.answered(answer)
        return answer

    return handle_here


class _Processing(Within):
    """The span in which a record is handled: a child of the span where its event comes from."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Spans, group: str, record: Record) -> None:
        self._spans = spans
        context, origin = within(record.headers)
        span = spans.start(
            "process",
            "process",
            SpanKind.CONSUMER,
            destination=record.topic,
            attributes={
                names.PARTITION: str(record.partition),
                names.GROUP: group,
            },
            context=context,
            links=() if origin is None else (Link(origin),),
        )
        super().__init__(span, context)
        if span.is_recording():
            spans.tell(span, about(record, spans))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            outcome = "unavailable" if isinstance(error, Unavailable) else "failed"
            self._spans.tell(self.span, {names.OUTCOME: outcome})
        super().__exit__(kind, error, trace)

    def answered(self, answer: object) -> None:
        """Say in the span what the handler has answered."""
        if self.span.is_recording():
            # A handler of several answers for one record with a list.
            if isinstance(answer, list | tuple) and len(answer) == 1:
                answer = answer[0]
            self._say(answer)

    def _say(self, answer: object) -> None:
        outcome = "done" if answer is None else _OUTCOMES.get(type(answer), "dead")
        said: names.Attributes = {names.OUTCOME: outcome}
        if isinstance(answer, Skip):
            said[names.REASON] = answer.reason[: names.MOST_TEXT]
        elif isinstance(answer, Retry | Dead):
            said[names.REASON] = answer.error[: names.MOST_TEXT]
            went_wrong(self.span, type(answer).__name__, answer.error)
        self._spans.tell(self.span, said)


class _ProcessingMany(_Processing):
    """The span in which several records are handled: it begins a trace, linked to theirs."""

    __slots__ = ()

    def __init__(self, spans: Spans, group: str, records: Sequence[Record]) -> None:
        self._spans = spans
        topics = {record.topic for record in records}
        span = spans.start(
            "process",
            "process",
            SpanKind.CONSUMER,
            destination=topics.pop() if len(topics) == 1 else "",
            attributes={names.GROUP: group, names.COUNT: len(records)},
            links=links_of(record.headers for record in records),
        )
        Within.__init__(self, span)

    def _say(self, answer: object) -> None:
        bad: dict[str, int] = {}
        for each in answer if isinstance(answer, list | tuple) else ():
            if isinstance(each, Retry | Dead):
                bad[_OUTCOMES[type(each)]] = bad.get(_OUTCOMES[type(each)], 0) + 1
        outcome = "done" if not bad else "failed"
        self._spans.tell(self.span, {names.OUTCOME: outcome})
        if bad:
            said = ", ".join(f"{count} {what}" for what, count in sorted(bad.items()))
            went_wrong(self.span, "Retry" if "retry" in bad else "Dead", said)


def about(record: Record, spans: Spans) -> names.Attributes:
    """Return the attributes of a record, for a span that is recorded."""
    found: names.Attributes = {names.OFFSET: record.offset, names.ATTEMPT: attempt(record)}
    with suppress(InvalidEvent):  # the consumer says why; the span does without an id
        found[names.MESSAGE] = record.identity.id[: names.MOST_TEXT]
    if record.value is None:
        found[names.TOMBSTONE] = True
    if spans.shows_keys and record.key is not None:
        found[names.KEY] = record.key[: names.MOST_TEXT].decode(errors="replace")
    return found


def attempt(record: Record) -> int:
    """Return the number of a record's attempt, from 1."""
    try:
        return envelope.delivery(record).attempt if envelope.was_delivered(record) else 1
    except InvalidEvent:
        return 1
