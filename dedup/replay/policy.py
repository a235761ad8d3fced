"""A policy over the batches of a recorded trace."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from itertools import compress

from dedup.replay.trace import Traced, to_json
from dedup.rules.identity import Identity, identity
from dedup.rules.policies import decode, policies
from dedup.rules.policies.decode import DECODERS, Undecodable
from dedup.rules.policies.expressions import compile_filter, load_handler
from dedup.rules.policies.memory import Memory, Seen
from dedup.rules.policies.outputs import encode_output
from dedup.rules.policies.policies import Failed, Handled, Skipped, Verdict
from dedup.rules.policies.results import KEEP, Again, Dead, Done, Output, Result, Retry
from dedup.settings.policy import ExactSettings, PolicySettings
from outbox.envelope import Record
from outbox.errors import DovecoteError
from outbox.event import Event, headers_of_output

_MILLISECOND = timedelta(milliseconds=1)


class TracedPolicy:
    """
    One policy over batches of `batch_size` consecutive records; the last batch may have fewer.

    The verdicts of a batch come key by key, in the order in which the keys first appear.
    """

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings
        self._policy = _policy(settings)
        self._filter = compile_filter(settings.filter) if settings.filter else None
        self._handler = load_handler(settings.handler) if settings.handler else None
        self._memory = (
            None if settings.remember is None else Memory(settings.remember // _MILLISECOND)
        )
        self._batch: list[_Entry] = []

    def record(self, record: Traced, now: int) -> Iterator[dict[str, object]]:
        """Take a record; decide the batch if this record fills it."""
        self._batch.append(_entry(record, self._settings))
        if len(self._batch) == self._settings.batch_size:
            yield from self._decide(now)

    def advance(self, now: int) -> Iterator[dict[str, object]]:  # noqa: ARG002  # others need it
        """Do nothing: a batch is a number of records, not a span of time."""
        yield from ()

    def end(self, now: int) -> Iterator[dict[str, object]]:
        """Decide the last, incomplete batch."""
        yield from self._decide(now)

    def _decide(self, now: int) -> Iterator[dict[str, object]]:
        batch, self._batch = self._batch, []
        if self._memory is not None:
            duplicates = list(self._memory.duplicates(map(_Entry.seen, batch), now))
            for entry in compress(batch, duplicates):
                yield from _lines(Skipped(entry, f"duplicate of {entry.identity().id}"), now)
            batch = [
                entry for entry, duplicate in zip(batch, duplicates, strict=True) if not duplicate
            ]
        for _, entries in policies.by_key(batch, _Entry.group):
            for verdict in self._policy(
                entries,
                matches=self._matches,
                handle=self._handle,
                identity=_Entry.identity,
            ):
                yield from _lines(verdict, now)

    def _matches(self, entry: "_Entry") -> bool:
        if entry.keyless_because is not None:
            raise entry.keyless_because
        event = entry.event  # decoded even without a filter: an unreadable record must not win
        return self._filter is None or self._filter(event)

    def _handle(self, entry: "_Entry") -> Result:
        result = Done() if self._handler is None else self._handler(entry.event)
        if not isinstance(result, Done) or result.outputs is None:
            return result
        outputs = tuple(result.outputs)  # a handler may give what can be read only once
        for number, output in enumerate(outputs):
            # An output that cannot be written is a failure of the handler, as in a Spark job.
            encode_output(entry.event, number, output)
            _written(output)
        return Done(outputs)


@dataclass(frozen=True)
class _Entry:
    """A record of the trace, with the source of its key."""

    traced: Traced
    record: Record
    format: decode.Format
    key: object = None
    keyless_because: Exception | None = None

    @cached_property
    def event(self) -> Event:
        return DECODERS[self.format](self.record)

    def group(self) -> str | bytes | None:
        """Return a value that is equal for records with the same key; None for one without."""
        return self.key if self.key is None or isinstance(self.key, str) else to_json(self.key)

    def identity(self) -> Identity:
        return identity(self.record)

    def seen(self) -> Seen:
        record = self.record
        return Seen(self.identity(), record.timestamp, (record.topic, record.partition))

    def fingerprint(self) -> bytes | None:
        return decode.fingerprint(self.record)


def _entry(traced: Traced, settings: PolicySettings) -> _Entry:
    record = traced.record(is_json=settings.value == "json")
    entry = _Entry(traced, record, settings.value, traced.key)
    if settings.key == "record":
        return entry
    try:
        return replace(entry, key=_key_of_fields(entry.event.value, settings.key))
    except DovecoteError as error:
        return replace(entry, key=None, keyless_because=error)


def _key_of_fields(value: object, names: Sequence[str]) -> list[object] | None:
    """Return the fields of `value` that make up the key; None if one of them is null."""
    for name in names:
        if not isinstance(value, dict) or name not in value:
            msg = f'the value has no field "{name}", which the key is made of'
            raise Undecodable(msg)
    fields = [value[name] for name in names] if isinstance(value, dict) else []
    return None if None in fields else fields


def _policy(settings: PolicySettings) -> Callable[..., Iterator[Verdict[_Entry]]]:
    if isinstance(settings, ExactSettings) and settings.by == "value":
        return partial(policies.exact, fingerprint=_Entry.fingerprint)
    return policies.POLICIES[settings.type]


def _lines(verdict: Verdict[_Entry], now: int) -> Iterator[dict[str, object]]:
    match verdict:
        case Handled(entry, Again(after)):
            value = {"value": entry.traced.value, "again": True}
            yield _line("result", entry, now) | value | _after(after)
        case Handled(entry, Done(None)):
            yield _line("result", entry, now) | {"value": entry.traced.value}
        case Handled(entry, Done(outputs)):
            for output in outputs or ():
                yield _line("result", entry, now) | _written(output)
        case Skipped(entry, reason):
            yield _line("skip", entry, now) | {"reason": reason}
        case Failed(entry, Retry(error, after)):
            yield (
                _line("error", entry, now) | {"reason": error, "goes_to": "retry"} | _after(after)
            )
        case Failed(entry, Dead(error)):
            yield _line("error", entry, now) | {"reason": error, "goes_to": "dead"}


def _line(kind: str, entry: _Entry, now: int) -> dict[str, object]:
    traced = entry.traced
    _, id_, round_ = entry.identity()
    return {
        "kind": kind,
        "key": entry.key,
        "at": now,
        "topic": traced.topic,
        "partition": traced.partition,
        "offset": traced.offset,
        "id": id_,
        "round": round_,
    }


def _after(after: timedelta | None) -> dict[str, object]:
    return {} if after is None else {"after_ms": after // _MILLISECOND}


def _written(output: Output) -> dict[str, object]:
    """
    Return an output as its line shows it; bytes that are not text come in base64.

    Raises:
        ValueError, TypeError: JSON cannot hold it, or a header is none.
    """
    line = _value(output.value)
    if output.key is not KEEP:
        line["output_key"] = _text(output.key)
    if output.headers:
        found = headers_of_output(output.headers)
        line["headers"] = [[name, _text(value)] for name, value in found]
    to_json(line)
    return line


def _value(value: object) -> dict[str, object]:
    if not isinstance(value, bytes | bytearray | memoryview):
        return {"value": value}
    data = bytes(value)
    try:
        return {"value": data.decode()}
    except UnicodeDecodeError:
        return {"value_base64": b64encode(data).decode()}


def _text(value: bytes | str | None) -> str | None:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
