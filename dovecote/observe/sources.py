"""Settings that name the parts that there are: outboxes, consumers, Spark jobs and push."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from dovecote.process.settings.loading import load
from dovecote.process.settings.models import Settings
from dovecote.process.settings.references import POINTERS, is_pointer
from dovecote.process.settings.values import Dsn, Duration, KafkaProperties, pointed
from outbox.errors import BadSettings

PREFIX = "DOVECOTE_WATCH"

# No variable begins like this: those of a part are set where it runs, and not here.
_NO_PREFIX = f"{PREFIX}_OF_NO_VARIABLE"

# As a consumer has it, for its own file.
_OWN_CONSUMER = "DOVECOTE_CONSUME"

_URLS = ("http://", "https://")


def _url(value: str) -> str:
    if not value.startswith(_URLS):
        msg = f"{value[:100]!r} is no address of a part: write http://host:port"
        raise ValueError(msg)
    return value.rstrip("/")


def _hidden(value: object, info: ValidationInfo) -> object:
    if value and not is_pointer(value):
        msg = f"is a secret: write {POINTERS} in its place"
        raise ValueError(msg)
    return pointed(value, info)


Url: TypeAlias = Annotated[str, AfterValidator(_url)]
Secret: TypeAlias = Annotated[str, BeforeValidator(_hidden), Field(repr=False)]


class _Source(BaseModel):
    """The base of all: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    config: Path | None = None
    """
    The settings file of the part itself, of which the rest is taken; a relative path begins where
    this file is.
    """

    kafka: KafkaProperties = Field(default_factory=dict)
    """The cluster of this part. Default: `kafka` of the whole file."""

    metrics: tuple[Url, ...] = ()
    """Where its processes serve `/metrics` and `/readyz`: `http://host:port` of each."""


class OutboxSource(_Source):
    """One outbox, and its relays."""

    dsn: Dsn = ""
    """The database: a libpq connection string or a table of libpq parameters."""

    schema_name: str = Field(default="outbox", alias="schema")
    """The Postgres schema of the outbox."""

    name: str = ""
    """The outbox's name, as its relays have it. Default: the schema."""

    progress_topic: str = ""
    """The relays' topic of progress. Default: `dovecote.progress.<name>`."""

    shards: int = Field(default=1, ge=1, le=64)
    """How many relays share the work."""

    retention: Duration = timedelta(0)
    """How long its relays keep published rows in the table."""

    mode: str = "exactly_once"
    """How its relays publish: `exactly_once` or `at_least_once`."""


class InboxSource(BaseModel):
    """The inbox of a consumer."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    dsn: Dsn
    """Its database."""

    schema_name: str = Field(default="inbox", alias="schema")
    """The Postgres schema of the inbox."""

    retention: Duration = timedelta(days=7)
    """How long an event is remembered."""


class _Tier(BaseModel):
    """One retry topic of a consumer, as far as it is looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    topic: str
    """Its name."""


class RetriesSource(BaseModel):
    """The retries of a consumer, as its own file has them."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    dead_letter_topic: str | None = None
    """Where its dead letters go."""

    tiers: tuple[_Tier, ...] = ()
    """Its retry topics, each with `topic`."""

    skip_on: tuple[str, ...] = ()
    """Exceptions for which a record is skipped."""


class ConsumerSource(_Source):
    """One consumer: the members of its group are its processes."""

    group: str = ""
    """Its consumer group."""

    topics: tuple[str, ...] = ()
    """The topics that it reads."""

    retries: RetriesSource = RetriesSource()
    """Its retry topics and its dead-letter topic."""

    inbox: InboxSource | None = None
    """Its inbox, if it has one."""

    policy: str = "exact"
    """Which records of a key it handles."""

    filter: str | None = None
    """The records that it handles; the others are skipped."""


class _Spark(BaseModel):
    """The table `spark` of a job, as far as it is looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    query: str = ""
    """The name of its query."""

    checkpoint: str = ""
    """Its checkpoint, where it can be reached from here."""


class _Read(BaseModel):
    """The table `source` of a job, as far as it is looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    topics: tuple[str, ...] = ()
    """The topics that it reads."""


class _Operator(BaseModel):
    """The table `operator` of a job, as far as it is looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    type: str = ""
    """The policy of a job that deduplicates, or the kind of another one."""

    handler: str | None = None
    """The handler that it calls."""

    remember: Any = None
    """How far apart duplicates may be; nothing: a policy knows only its batch."""


class SparkSource(_Source):
    """One Spark job."""

    spark: _Spark = _Spark()
    """`query`, and `checkpoint` where it can be reached from here."""

    source: _Read = _Read()
    """`topics`: the topics that it reads."""

    output: dict[str, Any] = Field(default_factory=dict)
    """Its topics, as its own file has them: `topic`, `retry_topic`, `dead_letter_topic`, …"""

    operator: _Operator = _Operator()
    """Its policy, as its own file has it: `type`, `handler` and `remember`."""


class PushSource(_Source):
    """The processes of one push."""

    url: Url | None = None
    """Where its API is."""

    token: Secret = ""
    """A token of its API; a pointer to it."""

    dsn: Dsn = ""
    """Its database, for what the API does not say."""

    schema_name: str = Field(default="push", alias="schema")
    """The Postgres schema of its subscriptions."""


class SourcesSettings(Settings):
    """Each part by a name of your own; all of them are optional."""

    outbox: dict[str, OutboxSource] = Field(default_factory=dict)
    """Outboxes, by names of your own."""

    consumer: dict[str, ConsumerSource] = Field(default_factory=dict)
    """Consumers, by names of your own."""

    spark: dict[str, SparkSource] = Field(default_factory=dict)
    """Spark jobs, by names of your own."""

    push: dict[str, PushSource] = Field(default_factory=dict)
    """Installations of push, by names of your own."""


class WatchSettings(Settings):
    """The file that `dovecote find`, `dead`, `console` and `audit` read."""

    kafka: KafkaProperties = Field(default_factory=dict)
    """Any librdkafka property; `bootstrap.servers` at least."""

    sources: SourcesSettings = SourcesSettings()
    """The parts that there are."""

    audit: Any = None
    """The table of `dovecote audit`, which the other commands pass over."""

    console: Any = None
    """The table of `dovecote console`, which the other commands pass over."""

    contracts: Any = None
    """The table of `dovecote contracts`, which the other commands pass over."""


W = TypeVar("W", bound=WatchSettings)
S = TypeVar("S", bound=_Source)


def read(model: type[W], file: Path | None, environ: Mapping[str, str] = os.environ) -> W:
    """
    Return the settings of a file, in which each source has what its own file says.

    Raises:
        BadSettings: a file cannot be read, or a source lacks what it needs.
    """
    try:
        found = load(model, file, prefix=PREFIX, environ=environ)
    except BadSettings as error:
        msg = f"{error}{_hint(file)}"
        raise BadSettings(msg) from None
    folder = Path() if file is None else file.parent

    def complete(kind: str, given: Mapping[str, S]) -> dict[str, S]:
        whole = {name: _joined(each, folder, environ) for name, each in given.items()}
        for name, each in whole.items():
            if missing := _missing(each):
                msg = (
                    f"sources.{kind}.{name}: {missing} is missing: give it, or `config` with "
                    "the part's own file"
                )
                raise BadSettings(msg)
        return {name: _defaulted(each, found.kafka) for name, each in whole.items()}

    given = found.sources
    sources = SourcesSettings.model_construct(
        outbox=complete("outbox", given.outbox),
        consumer=complete("consumer", given.consumer),
        spark=complete("spark", given.spark),
        push=complete("push", given.push),
    )
    return found.model_copy(update={"sources": sources})


# A file with one of these settings is that of a part; the first one decides.
_OF_PARTS = {
    "sources": "",
    "group": "consumer",
    "brokers": "`dovecote push serve`",
    "dsn": "relay",
    "operator": "Spark job",
    "source": "Spark job",
}


class _AnyFile(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


def _hint(file: Path | None) -> str:
    """Return what to add to the error about a file that is no watch file."""
    try:
        given = load(_AnyFile, file, prefix=_NO_PREFIX, environ={}).model_extra or {}
    except BadSettings:
        return ""
    part = next((part for name, part in _OF_PARTS.items() if name in given), "")
    if not part:
        return ""
    of = part if part.startswith("`") else f"a {part}"
    return (
        f"\nThis looks like the file of {of}; give the file that names the parts in [sources], "
        "see docs/watch.md."
    )


def own_consumer(file: Path | None, environ: Mapping[str, str]) -> ConsumerSource:
    """
    Return the consumer that its own settings file describes, as far as it is looked at.

    Raises:
        BadSettings: the file cannot be read, or lacks the group or the topics.
    """
    found = load(_lenient(ConsumerSource), file, prefix=_OWN_CONSUMER, environ=environ)
    if missing := _missing(found):
        msg = f"{missing} is missing: give --config with the file of a consumer"
        raise BadSettings(msg)
    return found


def _joined(given: S, folder: Path, environ: Mapping[str, str]) -> S:
    """Return a source with what its own settings file says, where it says nothing itself."""
    if given.config is None:
        return given
    own = load(_lenient(type(given)), folder / given.config, prefix=_NO_PREFIX, environ=environ)
    update = {name: getattr(own, name) for name in own.model_fields_set}
    update |= {name: getattr(given, name) for name in given.model_fields_set}
    return given.model_copy(update=update)


def _defaulted(source: S, kafka: Mapping[str, str]) -> S:
    """Return a source with the defaults that other settings decide."""
    update: dict[str, object] = {} if source.kafka else {"kafka": dict(kafka)}
    if isinstance(source, OutboxSource):
        name = source.name or source.schema_name
        topic = source.progress_topic or f"dovecote.progress.{name}"
        update |= {"name": name, "progress_topic": topic}
    return source.model_copy(update=update)


def _missing(source: _Source) -> str:
    match source:
        case OutboxSource(dsn=""):
            return "`dsn`"
        case ConsumerSource(group="") | ConsumerSource(topics=()):
            return "`group` or `topics`"
        case PushSource(url=None, dsn=""):
            return "`url` or `dsn`"
        case SparkSource(source=_Read(topics=())):
            return "`source.topics`"
        case _:
            return ""


_LENIENT: dict[type[_Source], type[_Source]] = {}


def _lenient(kind: type[S]) -> type[S]:
    """Return the same model for a file that says more: that of the part itself."""
    if kind not in _LENIENT:
        config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)
        _LENIENT[kind] = type(
            kind.__name__, (kind,), {"model_config": config, "__doc__": kind.__doc__}
        )
    return _LENIENT[kind]  # type: ignore[return-value]  # made of it
