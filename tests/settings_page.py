"""
Write docs/settings.md from the classes of the settings: `python -m tests.settings_page`.

A test compares the page with the classes, so that a setting cannot be without its line.
"""

import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, WrapValidator
from pydantic.fields import FieldInfo

from dedup.settings import consumer as consumer_settings
from dedup.settings import dead as dead_settings
from dedup.settings.consumer import ConsumeSettings
from dedup.settings.dead import DeadSettings
from dovecote.console.settings import ConsoleSettings
from dovecote.contracts.settings import ContractsSettings
from dovecote.observe import sources as watch_settings
from dovecote.observe.audit_settings import AuditSettings
from dovecote.observe.sources import WatchSettings
from dovecote.process.settings.schema import docstrings
from dovecote.push import settings as push_settings
from dovecote.push.settings import PushSettings
from relay import settings as relay_settings
from relay.settings import RelaySettings
from spark_jobs.jobs.flow import Flow
from spark_jobs.operators.aggregation.config import Connection, Destination, Located, Schema, Step
from spark_jobs.query import settings as spark_settings
from spark_jobs.query.settings import DedupSettings
from spark_jobs.stateful.settings import JOBS, StatefulSettings
from tests.support.documents import ROOT

PAGE = ROOT / "docs/settings.md"

_HEAD = """\
# Every setting

<!-- `python -m tests.settings_page` makes this from docstrings: change them there. -->

This page lists every setting of the relay, the consumer, push, the Spark jobs and what watches
them.
The guides explain them by task; this page is for looking them up.

* [The relay](#the-relay)
* [The consumer](#the-consumer), [dead letters](#dead-letters)
* [Push](#push)
* [Spark: deduplication](#spark-deduplication), [all stateful jobs](#spark-all-stateful-jobs)
* [The watch file](#the-watch-file), [the auditor](#the-auditor), [the console](#the-console),
  [contracts](#contracts)
* [Spark: aggregation flows](#spark-aggregation-flows),
  [aggregation steps](#spark-aggregation-steps)

A settings file is TOML, and `a.b` is the field `b` of the table `[a]`.
The environment overrides the file: `DOVECOTE_RELAY_HTTP__PORT` sets `http.port` of the relay.
In a table of Kafka properties, the underscores of a variable stand for dots:
`DOVECOTE_RELAY_KAFKA__BOOTSTRAP_SERVERS`.
A variable has a whole table as JSON, which takes the place of the file's:
`DOVECOTE_PUSH_BROKERS='{"default": {"bootstrap.servers": "kafka-1:9092"}}'`. A file may point to
it with `brokers = { env = "BROKERS" }`. Secrets in it are pointers, as in a file:
`{"sasl.password": {"env": "KAFKA_PASSWORD"}}`. A list is JSON, too:
`DOVECOTE_CONSUME_TOPICS='["orders"]'`.
Any of them may have a table `identity`, with [the settings of a provider of
tokens](identities.md).
An unknown setting is an error. A command with `--check` reads the settings and exits.
`dovecote schema relay` prints the JSON Schema of a relay's file: an editor checks the file with
it. Some editors take `#:schema relay.schema.json` in the first line. Other files have one, too.

A duration is text such as `"250ms"`, `"60s"`, `"3m"` or `"2h"`.
A secret is never in the file: write `{ env = "NAME" }` or `{ file = "PATH" }` in its place.
A default of `—` means that the setting is not set, or that its text names the default.
"""

_SHORT: dict[type[BaseModel], str] = {
    Connection: 'table: `type = "kafka"`, `name`',
    Destination: 'table: `name`, `type = "destination"`, `topic`, `config`',
    Located: "table: `source`, `path`",
    Schema: "list of tables: `source`, `path`, `default`",
}
"""Models of a few fields that come up again and again."""

_UNTOLD = {
    "Avro.schema_": "Avro schemas; `default = true` marks the one for records without a "
    "`schemaName` header.",
    "CountTrigger.count": "Events of one firing.",
    "Csv.column_separator": "The character between two columns.",
    "DeadSettings.source": "The source of a Spark job.",
    "DedupStep.operator": "The `[operator]` table that replay reads.",
    "DedupStep.retry": "Destination of events that come again.",
    "Formats.input": "The format of the events that are read.",
    "Formats.output": "The format of the events that are written.",
    "HashKey.algorithm": "The hash of the body.",
    "HeadersKey.keys": "Names of the headers.",
    "Located.path": "The file's path.",
    "OperatorStep.type": "The operator.",
    "Step.key": "The key that events are grouped by.",
    "Step.trigger": "The rule that fires a window.",
    "TimeTrigger.time": "The time of day, in the form of `timePattern`.",
    "config": "The connection.",
    "destination": "Destination of results.",
    "error": "Destination of events that the step cannot handle.",
    "late": "Destination of late events; absent: they are only counted.",
    "name": "Its name.",
}
"""The meaning of fields whose name says it where they are declared."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: a heading, what to know first, a model."""

    title: str
    text: str
    model: type[BaseModel]
    less: type[BaseModel] | None = None
    """Its settings are in an earlier section."""


def sections() -> Iterator[Section]:
    yield Section(
        "The relay",
        f"`dovecote relay run`; variables begin with `{relay_settings.PREFIX}_`. "
        "The guide is [The relay](relay.md).",
        RelaySettings,
    )
    yield Section(
        "The consumer",
        f"`dovecote consume run`; variables begin with `{consumer_settings.PREFIX}_`. "
        "`Consumer` takes the same settings without `handler` and `http`. "
        "The guides are [Consuming](consume.md) and [Retries](retries.md).",
        ConsumeSettings,
    )
    yield Section(
        "Dead letters",
        "`dovecote consume dead` reads these of the consumer's or the Spark job's file; variables "
        f"begin with `{dead_settings.PREFIX}_`. It ignores the file's other settings.",
        DeadSettings,
    )
    yield Section(
        "Push",
        f"`dovecote push serve`; variables begin with `{push_settings.PREFIX}_`. "
        "The guide is [Pushing](push.md), which also has the fields of a subscription.",
        PushSettings,
    )
    yield Section(
        "The watch file",
        f"`dovecote find` and others read it; variables begin with `{watch_settings.PREFIX}_`. "
        "The guide is [The watch file](watch.md).",
        WatchSettings,
    )
    yield Section(
        "The auditor",
        f"`dovecote audit`; variables begin with `{watch_settings.PREFIX}_`. "
        "The guide is [The auditor](audit.md).",
        AuditSettings,
    )
    yield Section(
        "The console",
        f"`dovecote console`; variables begin with `{watch_settings.PREFIX}_`. "
        "The guide is [The console](console.md).",
        ConsoleSettings,
    )
    yield Section(
        "Contracts",
        "`dovecote contracts`. The guide is [Contracts](contracts.md).",
        ContractsSettings,
    )
    yield Section(
        "Spark: deduplication",
        f"`dovecote spark dedup`; variables begin with `{spark_settings.PREFIX}_`. "
        "The guide is [Deduplication with Spark](spark-dedup.md).",
        DedupSettings,
    )
    yield Section(
        "Spark: all stateful jobs",
        "`dovecote spark pairing`, `sessions` and `delay` share these; variables begin with "
        f"`{spark_settings.PREFIX}_`. "
        "The guide is [Stateful jobs with Spark](spark-operators.md).",
        StatefulSettings,
    )
    for name, job in sorted(JOBS.items()):
        yield Section(
            f"Spark: {name}",
            f"`dovecote spark {name}` has these, besides [the shared ones]"
            "(#spark-all-stateful-jobs).",
            job,
            StatefulSettings,
        )
    yield Section(
        "Spark: aggregation flows",
        "`dovecote spark aggregate` reads a flow in HOCON, YAML or JSON. "
        "The guide is [Aggregation](aggregation.md).",
        Flow,
    )
    yield Section(
        "Spark: aggregation steps",
        "A step of a flow, in the flow's file or in one of its own.",
        Step,
    )


@dataclass(slots=True)
class Table:
    """Rows of a model, and the fields that are one of several models."""

    rows: list[str] = field(default_factory=list)
    choices: dict[tuple[type[BaseModel], ...], list[str]] = field(default_factory=dict)


def page() -> str:
    """Return the page as the classes have it."""
    parts = [_HEAD]
    for section in sections():
        table = _table(section.model)
        known = set(_table(section.less).rows) if section.less else set()
        rows = [row for row in table.rows if row not in known]
        parts += [f"## {section.title}\n", f"{section.text}\n", _shown(rows)]
        if section.less is None and section.model is not StatefulSettings:
            parts += _choices(table)
    return "\n".join(parts)


def _choices(table: Table) -> Iterator[str]:
    """Yield the sections of fields that are one of several models."""
    for models, paths in table.choices.items():
        for model in models:
            rows = _table(model, f"{paths[0]}." if len(paths) == 1 else "").rows
            if rows and model is not Step:  # which has a section of its own
                where = " and ".join(f"`{path}`" for path in paths)
                yield f"### {where} of type {_kinds(model)}\n"
                yield _shown(rows)


def _kinds(model: type[BaseModel]) -> str:
    return " or ".join(f"`{kind}`" for kind in get_args(model.model_fields["type"].annotation))


def _shown(rows: list[str]) -> str:
    head = ["| setting | value | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _table(model: type[BaseModel], prefix: str = "", into: Table | None = None) -> Table:
    table = into if into is not None else Table()
    told = _told(model)
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        models = tuple(models_in(info.annotation))
        text = told.get(name, "")
        if len(get_args(info.annotation)) == 1 and get_origin(info.annotation) is Literal:
            continue  # the type, which the heading names
        if not models:
            table.rows.append(_row(path, _value(info), info, text))
        elif len(models) > 1:
            table.choices.setdefault(models, []).append(path)
            kinds = " or ".join(_kinds(each) for each in models)
            table.rows.append(_row(path, f"table; `type` is {kinds}", info, text))
        elif models[0] in _SHORT:
            table.rows.append(_row(path, _SHORT[models[0]], info, text))
        else:
            is_many = get_origin(info.annotation) in {dict, tuple}
            if is_many or text:
                text = text or _first_line(models[0])
                table.rows.append(_row(path, "table" + "s" * is_many, info, text))
            inner = f"{path}.<name>." if get_origin(info.annotation) is dict else f"{path}."
            _table(models[0], inner, table)
    return table


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def _row(path: str, value: str, info: FieldInfo, text: str) -> str:
    cells = [f"`{path}`", value, _default(info), text]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(info: FieldInfo) -> str:  # noqa: PLR0911  # a kind of value each
    if info.is_required():
        return "required"
    match info.default:
        case timedelta() as time:
            seconds = time.total_seconds()
            return f'`"{seconds * 1000:g}ms"`' if 0 < seconds < 1 else f'`"{seconds:g}s"`'
        case bool(flag):
            return f"`{str(flag).lower()}`"
        case int() | float() as number:
            return f"`{number}`"
        case str(text) if text:
            return f'`"{text}"`'
        case BaseModel() as model if kind := getattr(model, "type", ""):
            return f'`"{kind}"`'
        case tuple(items) if items:
            return f"`{json.dumps(items)}`"
        case _:
            return "—"


def _value(info: FieldInfo) -> str:
    if info.json_schema_extra == {"open": True}:
        return "table"
    if any(isinstance(each, WrapValidator) for each in info.metadata) and info.annotation is str:
        return "text or table"
    return _type(info.annotation, info.metadata)


def _type(annotation: Any, metadata: Any = ()) -> str:  # noqa: PLR0911  # a type each
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Annotated:
            return _type(arguments[0], arguments[1:])
        case origin if origin is Literal:
            return " or ".join(f"`{json.dumps(each)}`" for each in arguments)
        case origin if origin in {Union, UnionType}:
            kinds = [_type(each, metadata) for each in arguments if each is not type(None)]
            return " or ".join(dict.fromkeys(kinds))
        case origin if origin is dict:
            return "table"
        case origin if origin in {tuple, Sequence}:
            return "list"
    if annotation is bool:
        return "`true` or `false`"
    if annotation in {int, float}:
        return "number" + _bounds(metadata)
    if annotation is timedelta:
        return "duration"
    return "path" if annotation is Path else "text"


def _bounds(metadata: Any) -> str:
    """Return the bounds in `metadata`, which may lie within another field's."""
    found: dict[str, Any] = {}
    for each in metadata:
        for inner in [each, *getattr(each, "metadata", ())]:
            found |= {
                k: v for k in ("ge", "gt", "le") if (v := getattr(inner, k, None)) is not None
            }
    low = f" from {found['ge']:,}" if "ge" in found else ""
    low = f" above {found['gt']:,}" if "gt" in found else low
    return low + (f" to {found['le']:,}" if "le" in found else "")


def _first_line(model: type[BaseModel]) -> str:
    return (inspect.getdoc(model) or "").split("\n\n")[0].replace("\n", " ")


def _told(model: type[BaseModel]) -> dict[str, str]:
    """Return what is said of the fields of `model`, inherited ones too."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind is BaseModel or not issubclass(kind, BaseModel):
            continue
        found |= docstrings(kind)
        for field_name in kind.model_fields.keys() - found.keys():
            if untold := _UNTOLD.get(f"{kind.__name__}.{field_name}") or _UNTOLD.get(field_name):
                found[field_name] = untold
    return found


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT), file=sys.stderr)  # noqa: T201  # what a command says


if __name__ == "__main__":
    main()
