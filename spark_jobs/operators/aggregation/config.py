"""The fields of a file for an aggregation step, as in the operator's manual."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from dedup.settings.retries import TopicName
from dovecote.process.settings.models import Settings
from spark_jobs.operators.aggregation.triggers.clocks import Daily, zone
from spark_jobs.operators.aggregation.triggers.time_patterns import TimePattern

Name: TypeAlias = Annotated[StrictStr, Field(min_length=1)]
Where: TypeAlias = Literal["classpath", "file"]
Count: TypeAlias = Annotated[StrictInt, Field(ge=1)]
Milliseconds: TypeAlias = Annotated[StrictInt, Field(ge=1, le=366 * 86_400_000)]

Algorithm: TypeAlias = Literal["SHA-256", "SHA-1", "SHA-224", "SHA-384", "SHA-512", "MD5"]


class Model(Settings):
    """The base class: strict, with the manual's names."""

    model_config = ConfigDict(alias_generator=to_camel)


class Located(Model):
    """A file."""

    source: Where = "classpath"
    """`file`: beside the configuration, or absolute; `classpath`: in one of the script folders."""
    path: Name


class Schema(Located):
    """An Avro schema."""

    default: StrictBool = False
    """Used if a record has no `schemaName` header."""
    id: Annotated[StrictInt, Field(ge=0, lt=2**32)] | None = None
    """
    Its id in a schema registry. If one has an id, records begin with byte 0 and the id of their
    schema, as the serialisers of registries write them.
    """


class Csv(Model):
    """`{type: "csv"}`."""

    type: Literal["csv"]
    column_separator: Annotated[StrictStr, Field(min_length=1, max_length=1)] = ","
    field_names: Annotated[tuple[Name, ...], Field(min_length=1)]
    """The columns' names, in order."""

    @field_validator("field_names")
    @classmethod
    def _differ(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len({*names}) != len(names):
            msg = "two columns have the same name"
            raise ValueError(msg)
        return names

    @field_validator("column_separator")
    @classmethod
    def _separates(cls, separator: str) -> str:
        if separator in '"\r\n':
            msg = "a quote or the end of a line separates no columns"
            raise ValueError(msg)
        return separator


class Avro(Model):
    """`{type: "avro"}`."""

    type: Literal["avro"]
    schema_: Annotated[tuple[Schema, ...], Field(min_length=1, alias="schema")]

    @field_validator("schema_")
    @classmethod
    def _one_default(cls, schemas: tuple[Schema, ...]) -> tuple[Schema, ...]:
        if sum(each.default for each in schemas) > 1:
            msg = "more than one is marked as default"
            raise ValueError(msg)
        ids = [each.id for each in schemas if each.id is not None]
        if ids and len({*ids}) != len(schemas):
            msg = "if one has an id, each needs an id of its own"
            raise ValueError(msg)
        return schemas


class Json(Model):
    """`"json"`, or `{type: "json"}`."""

    type: Literal["json"]


class Xml(Model):
    """`"xml"`, or `{type: "xml"}`."""

    type: Literal["xml"]
    lists: tuple[Name, ...] = ()
    """
    Elements that are always lists, however many there are: paths from the root, as `order.line`.
    """
    namespaces: dict[StrictStr, Name] = Field(default_factory=dict)
    """
    The namespaces by the prefixes that names get in events, and documents in the output; the
    prefix "" is for elements whose names have none.
    """

    @field_validator("namespaces")
    @classmethod
    def _are_prefixes(cls, namespaces: dict[str, str]) -> dict[str, str]:
        for prefix in namespaces:
            if prefix and (not prefix.replace("-", "_").replace(".", "_").isidentifier()):
                msg = f'"{prefix}" is no prefix'
                raise ValueError(msg)
        if len({*namespaces.values()}) != len(namespaces):
            msg = "two prefixes have the same namespace"
            raise ValueError(msg)
        return namespaces


def _typed(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


_Format: TypeAlias = Annotated[Json | Xml | Csv | Avro, Field(discriminator="type")]
Format: TypeAlias = Annotated[
    _Format, BeforeValidator(_typed, json_schema_input_type=Literal["json", "xml"] | _Format)
]
"""The format of events."""


class Formats(Model):
    """`format`."""

    input: Format = Json(type="json")
    output: Format = Json(type="json")


class RecordKey(Model):
    """`{type: "key"}`: the record's own key."""

    type: Literal["key"]


class HeadersKey(Model):
    """`{type: "headers"}`: the values of headers, joined by `|`."""

    type: Literal["headers"]
    keys: Annotated[tuple[Name, ...], Field(min_length=1)]


class HashKey(Model):
    """`{type: "hash"}`: a hash of the body."""

    type: Literal["hash"]
    algorithm: Algorithm = "SHA-256"


class ScriptKey(Located):
    """`{type: "dsl"}`: the key that a script returns."""

    type: Literal["dsl"]


Key: TypeAlias = Annotated[
    RecordKey | HeadersKey | HashKey | ScriptKey, Field(discriminator="type")
]


class Gapped(Model):
    """A trigger whose windows close after a timeout."""

    timeout: Milliseconds
    """The longest time between two events of one window, in milliseconds."""
    should_fire_at_processing_time: StrictBool = True
    """Also close the window when this time has passed since its first event came."""


class CountTrigger(Gapped):
    """`{type: "count"}`: fires at this number of events."""

    type: Literal["count"]
    count: Count


class ScriptTrigger(Gapped, Located):
    """`{type: "dsl"}`: a script decides at each event."""

    type: Literal["dsl"]


class OnceADay(Model):
    """A trigger that fires once a day."""

    time_pattern: StrictStr
    """A pattern of Java's DateTimeFormatter."""
    time_zone: StrictStr = "UTC"
    """The zone if the pattern has no offset: an IANA name."""
    max_empty_intervals: Count = 1
    """After this many days without an event, the key is forgotten."""

    @field_validator("time_pattern")
    @classmethod
    def _is_pattern(cls, text: str) -> str:
        TimePattern(text)
        return text

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, name: str) -> str:
        zone(name)
        return name


class TimeTrigger(OnceADay):
    """`{type: "time"}`: fires at a time of day."""

    type: Literal["time"]
    time: StrictStr

    @model_validator(mode="after")
    def _time_is_of_the_pattern(self) -> Self:
        self.daily()
        return self

    def daily(self) -> Daily:
        """Return the time of day at which it fires."""
        return Daily.parse(self.time, TimePattern(self.time_pattern), self.time_zone)


class EventTimeTrigger(OnceADay, Located):
    """`{type: "timeFromEvent"}`: fires at the time that a script finds in the first event."""

    type: Literal["timeFromEvent"]


Trigger: TypeAlias = Annotated[
    CountTrigger | ScriptTrigger | TimeTrigger | EventTimeTrigger, Field(discriminator="type")
]


class Connection(Model):
    """A connection, by its name."""

    type: Literal["kafka"]
    name: Name


class Destination(Model):
    """A topic to write to."""

    name: Name
    type: Literal["destination"]
    topic: TopicName
    config: Connection


class Step(Model):
    """`{type: "aggregation"}`: one step."""

    name: Name
    type: Literal["aggregation"]
    environment_variables: Located | None = None
    """A JSON object that scripts see as `Env.loadedVariables`."""
    format: Formats = Formats()
    key: Key = RecordKey(type="key")
    trigger: Trigger
    dsl: Located | None = None
    """
    The script that makes events of a window; without it, the window's events go on unchanged.
    """
    state_full: StrictBool = False
    """Keep `Env.cache` for as long as the key, not only for its window."""
    destination: Destination
    error: Destination
    late: Destination | None = None
    """Events that come after their window was closed; without it, they are only counted."""
    branches: dict[Name, Destination] = Field(default_factory=dict)
    """Destinations by the `BranchName` that leads to them."""
    target_topics: tuple[TopicName, ...] = ()
    """Further topics that `TargetTopic` may name."""
    max_lag: Milliseconds | None = 300_000
    """An older record means that the source lags; then no clock closes a window."""
    max_ahead: Milliseconds | None = 3_600_000
    """
    An event further ahead of the wall clock joins no window: it goes to `late`, or without that
    to `error`; null: never.
    """
    script_timeout: Annotated[StrictInt, Field(ge=10, le=60_000)] = 1_000
    """
    The processor time that one call of a script may take, in milliseconds; as much again for each
    further MiB of JSON that it is given.
    """
    script_memory: Annotated[StrictInt, Field(ge=64, le=16_384)] = 512
    """
    The memory that a call of a script may take beyond what is in use, in MiB; 16 times the JSON
    that it is given comes on top.
    """
    max_window_bytes: Annotated[StrictInt, Field(ge=1)] = 256 * 2**20
    """
    About the most bytes that the events of one window may take; what comes beyond it goes to
    `error`. A window whose script folds keeps no events.
    """
    forget_after: Milliseconds | None = 86_400_000
    """A key without a window is forgotten this long after its last event."""

    @model_validator(mode="after")
    def _places_differ(self) -> Self:
        aside = [each.topic for each in (self.error, self.late) if each is not None]
        if len({*aside}) != len(aside) or {*aside} & {*self.topics()}:
            msg = "error and late need topics of their own"
            raise ValueError(msg)
        names = {each.config.name for each in self.destinations()}
        if len(names) > 1:
            msg = (
                f"destinations are on several connections ({', '.join(sorted(names))}): "
                "a batch is written in one transaction, which is of one cluster"
            )
            raise ValueError(msg)
        return self

    def destinations(self) -> tuple[Destination, ...]:
        """Return every destination."""
        found = (self.destination, *self.branches.values(), self.error, self.late)
        return tuple(each for each in found if each is not None)

    def topics(self) -> tuple[str, ...]:
        """Return the topics that outputs may go to; the first is the default one."""
        branches = (each.topic for each in self.branches.values())
        return tuple(dict.fromkeys((self.destination.topic, *branches, *self.target_topics)))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a step's file."""
    found = Step.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}
