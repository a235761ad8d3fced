"""A process records spans if OpenTelemetry's variables ask for it, and otherwise pays nothing."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import chain

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dovecote.process.telemetry import set_up_spans, wanted
from outbox.errors import BadSettings
from tests.support.waiting import patient

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

ASKED: list[tuple[dict[str, str], list[str]]] = [
    ({}, []),
    ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://x"}, []),
    ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp_proto_http"]),
    ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp_proto_http"]),
    ({ENDPOINT: "http://x"}, ["otlp_proto_http"]),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, ["otlp_proto_http"]),
    ({ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
    ({ENDPOINT: "http://x", "OTEL_SDK_DISABLED": "true"}, []),
]


@pytest.mark.parametrize(("environ", "names"), ASKED, ids=range(len(ASKED)))
def test_variables_say_where_spans_go(environ: dict[str, str], names: list[str]) -> None:
    assert list(wanted(environ)) == names


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(BadSettings, match=r"no exporter 'zipkin' is installed, but .*console"):
        set_up_spans("s", {"OTEL_TRACES_EXPORTER": "zipkin"})
    with pytest.raises(BadSettings, match="no exporter 'otlp_proto_grpc' is installed"):
        set_up_spans("s", {ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    with pytest.raises(BadSettings, match="OTEL_EXPORTER_OTLP_PROTOCOL=smoke: choose http"):
        set_up_spans("s", {ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"})


def test_an_sdk_that_is_set_up_already_is_left_alone(spans: InMemorySpanExporter) -> None:
    assert set_up_spans("s", {"OTEL_TRACES_EXPORTER": "nonsense"})
    assert spans.get_finished_spans() == ()


NOTHING = """
import sys
import {module}
from dovecote.process.telemetry import set_up_spans
assert not set_up_spans("s", {{}})
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


@pytest.mark.parametrize(
    "module",
    [
        "dedup.consumer",
        "dedup.kafka.polling",
        "dovecote.push.delivery.reading",
        "outbox.producer",
        "relay.relay",
        "spark_jobs.query.tracing",
    ],
)
def test_without_variables_nothing_of_opentelemetry_is_loaded(module: str) -> None:
    subprocess.run([sys.executable, "-c", NOTHING.format(module=module)], check=True)


LACKING = """
import logging, sys
logging.basicConfig(stream=sys.stdout)
sys.path[:] = [each for each in sys.path]
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "opentelemetry.sdk" else find(name)
from dovecote.process.telemetry import set_up_spans
assert not set_up_spans("s", {"OTEL_TRACES_EXPORTER": "otlp"})
"""


def test_a_process_without_the_sdk_goes_on_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LACKING], capture_output=True, text=True, check=True
    )
    assert "pip install 'dovecote[otel]'" in done.stdout


SENDING = """
from dovecote.process.telemetry import set_up_spans
from outbox import Event, Limits
from outbox.writing.append import Append
assert set_up_spans("dovecote-tests")
assert not Append([], "outbox", Limits()).events
Append([Event(topic="orders", type="OrderPlaced")], "outbox", Limits()).statement()
"""


def test_spans_reach_a_collector_before_the_process_ends() -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            subprocess.run(
                [sys.executable, "-c", SENDING],
                env={
                    **os.environ,
                    ENDPOINT: f"http://127.0.0.1:{server.server_port}",
                    "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
                    "NO_PROXY": "127.0.0.1",
                    "no_proxy": "127.0.0.1",
                },
                check=True,
                timeout=patient(30),
            )
        finally:
            server.shutdown()
            thread.join()
    sent = bytes(chain.from_iterable(bodies))
    for text in (b"create orders", b"dovecote-tests", b"dovecote.outbox", b"schemas/1.44.0"):
        assert text in sent
