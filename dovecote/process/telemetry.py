"""Set up OpenTelemetry's SDK in a process of Dovecote, if its variables ask for that."""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from outbox.errors import BadSettings
from outbox.tracing.conventions import DISABLED, flag
from outbox.tracing.gate import is_on

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_log = logging.getLogger("dovecote.tracing")

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_NAME = "OTEL_SERVICE_NAME"
_RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
_GROUP = "opentelemetry_traces_exporter"
_BY_PROTOCOL: Mapping[str, str] = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def set_up_spans(service: str, environ: Mapping[str, str] = os.environ) -> bool:
    """
    Make this process record spans, and return whether it does.

    It does so if `OTEL_TRACES_EXPORTER` or the endpoint of an OTLP collector is set, and leaves an
    SDK alone that is set up already, as by `opentelemetry-instrument`. `service` is its name where
    the variables have none. The SDK reads the others: sampler, propagators, limits, endpoint.

    Raises:
        BadSettings: an exporter or a protocol is not known.
    """
    if is_on():
        return True
    names = wanted(environ)
    if not names:
        return False
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        _log.warning(
            "variables ask for spans, and OpenTelemetry's SDK is not installed: going on without "
            "them; pip install 'dovecote[otel]'"
        )
        return False
    exporters = [_exporter(name) for name in names]

    from opentelemetry import trace
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # The SDK's own name for a service without one is `unknown_service`.
    own = {} if _is_named(environ) else {SERVICE_NAME: service}
    provider = TracerProvider(resource=Resource.create(own))
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    _log.info("spans go to %s", ", ".join(names))
    return True


def wanted(environ: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the exporters that variables ask for; none: no spans."""
    if flag(environ, DISABLED, default=False):
        return ()
    said = environ.get(EXPORTER, "").strip()
    if not said and not any(environ.get(name, "").strip() for name in ENDPOINTS):
        return ()
    names = [each.strip() for each in (said or "otlp").split(",") if each.strip()]
    if "none" in names:
        return ()
    return [_otlp(environ) if each == "otlp" else each for each in names]


def _otlp(environ: Mapping[str, str]) -> str:
    said = next((text for name in PROTOCOLS if (text := environ.get(name, "").strip())), None)
    protocol = said or "http/protobuf"
    if protocol not in _BY_PROTOCOL:
        msg = f"{PROTOCOLS[1]}={protocol}: choose {' or '.join(_BY_PROTOCOL)}"
        raise BadSettings(msg)
    return _BY_PROTOCOL[protocol]


def _is_named(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(_NAME, "").strip()) or "service.name=" in environ.get(_RESOURCE, "")


def _exporter(name: str) -> "SpanExporter":
    found = entry_points(group=_GROUP, name=name)
    if not found:
        there = sorted({each.name for each in entry_points(group=_GROUP)})
        msg = (
            f"{EXPORTER}: no exporter {name!r} is installed, but {', '.join(there) or 'none'}; "
            "dovecote[otel] has otlp over http/protobuf"
        )
        raise BadSettings(msg)
    made: SpanExporter = next(iter(found)).load()()
    return made
