"""
The cost of spans in the hot paths of writer, relay and consumer: `make bench-tracing`.

It measures the CPU time of an event in each path, without servers: whole runs differ by more than
what is looked for. Each way runs in a process of its own, in turn with the others, and the median
of the rounds counts. `--before DIR` compares with another checkout of the code.

Ways: `off` without an SDK, `1%` and `100%` with one that samples that share and encodes what it
has for a collector. Records carry a trace context in all of them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_ROUNDS = 9
_EVENTS = 20_000
_BATCH = 4_000
_WAYS = {"off": None, "1%": 0.01, "100%": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--before", type=Path, help="a checkout of earlier code")
    parser.add_argument("--one", choices=_WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        print(*(f"{seconds * 1e6:.4f}" for seconds in measured(args.one)))
        return
    from benchmarks import harness

    here = Path(__file__).parents[1]
    ways = {way: (way, here) for way in _WAYS}
    if args.before is not None:
        ways = {"before": ("off", args.before.resolve()), **ways}
    found: dict[str, list[list[float]]] = {way: [] for way in ways}
    for _ in range(args.rounds):
        for name, (way, code) in ways.items():
            found[name].append(_asked(way, code))
    for number, path in enumerate(("write", "relay", "consumer")):
        medians = {
            f"{name}_us": round(statistics.median(each[number] for each in rounds), 3)
            for name, rounds in found.items()
        }
        harness.emit("tracing", path=path, rounds=args.rounds, **medians)


def _asked(way: str, code: Path) -> list[float]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", way],
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(each) for each in done.stdout.split()]


def measured(way: str) -> Sequence[float]:
    """Return the CPU seconds of an event in each path."""
    share = _WAYS[way]
    flush = (lambda: None) if share is None else _set_up(share)
    return [_each(path, flush) for path in (_write(), _relay(), _consumer())]


def _each(path: Callable[[], None], flush: Callable[[], object]) -> float:
    path()
    flush()
    began = time.process_time()
    path()
    flush()  # what a thread of the SDK does for them counts too
    return (time.process_time() - began) / _EVENTS


def _set_up(share: float) -> Callable[[], object]:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class Encoding(SpanExporter):
        """Does everything for a collector but sending."""

        def export(self, spans: Any) -> SpanExportResult:  # noqa: ANN401  # as its base
            encode_spans(spans).SerializeToString()
            return SpanExportResult.SUCCESS

    sampler = ParentBased(TraceIdRatioBased(share))
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(BatchSpanProcessor(Encoding(), max_queue_size=10 * _EVENTS))
    trace.set_tracer_provider(provider)
    return provider.force_flush


def _headers(number: int) -> list[tuple[str, bytes]]:
    # As many are sampled as the way says: the records come from writers with the same share.
    share = _WAYS[sys.argv[-1]] or 1.0
    flags = int(number % round(1 / share) == 0)
    trace = f"00-{number + 1:032x}-{number + 1:016x}-{flags:02x}".encode()
    return [("traceparent", trace), ("ce_id", b"%036d" % number)]


def _write() -> Callable[[], None]:
    from outbox import Event, Limits
    from outbox.writing.append import Append

    events = [Event(topic="orders", key="k", type="T", value=b"x") for _ in range(100)]

    def path() -> None:
        for _ in range(_EVENTS // 100):
            for event in events:
                Append([event], "outbox", Limits()).statement()

    return path


def _relay() -> Callable[[], None]:
    from relay.rules.row import size_of
    from relay.tracing import publishing

    rows: list[Any] = []
    for number in range(_BATCH):
        names, values = zip(*_headers(number), strict=True)
        rows.append((1, "i", 0, "orders", b"k", b"x", "T", "s", None, None, names, values))

    def path() -> None:
        for _ in range(_EVENTS // _BATCH):
            with publishing("shop", rows):
                # The least that a relay does with each; publishing itself takes three times that.
                for row in rows:
                    size_of(row)

    return path


def _consumer() -> Callable[[], None]:
    from dedup.retries.plan import Plan
    from dedup.rules.lanes.lanes import Lanes
    from dedup.rules.policies.decode import as_json
    from dedup.rules.policies.policies import OF_CONSUMERS
    from dedup.rules.record import read_with
    from dedup.serving.handlers import of_records
    from dedup.serving.handover import Handover, HandoverReport
    from dedup.serving.retries import Retries
    from dedup.serving.serving import Serving, answering

    made = read_with(as_json)
    retries = Retries(Plan(), None, group="g")  # type: ignore[arg-type]  # nothing is set aside
    handle = of_records(lambda _: None)
    if _WAYS[sys.argv[-1]] is not None:
        from dedup.tracing.gate import consumer_spans

        spans = consumer_spans("g")
        if spans is not None:
            handle = spans.handling(handle, together=False)
    serving = Serving(
        policy=OF_CONSUMERS["every"],
        matches=lambda _: True,
        handle=answering(retries.handling(handle), retries),
        aside=retries,
        plain=True,
        unchosen="all",
        slice_seconds=60.0,
    )

    def path() -> None:
        handover = Handover(Lanes("apart"))
        stretch = handover.lanes.begin("orders", 0)
        handover.lanes.open(stretch)
        for first in range(0, _EVENTS, _BATCH):
            batch: dict[bytes | None, list[Any]] = {}
            for number in range(first, first + _BATCH):
                key = b"%d" % (number % 100)
                record = made("orders", 0, number, 0, key, b'{"n": 1}', _headers(number))
                batch.setdefault(key, []).append(record)
            handover.offer([(stretch, batch)])
            handled = 0
            while lanes := handover.lanes.take(100):
                report = HandoverReport()
                for lane in lanes:
                    serving.serve(lane, report)
                handled += len(report.handled)
                handover.settle(report)
            if handled != _BATCH:
                msg = f"{handled} of {_BATCH} records were handled"
                raise RuntimeError(msg)

    return path


if __name__ == "__main__":
    main()
