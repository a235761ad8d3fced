"""
A flow: steps chained by their destinations, each a query of its own, in one file.

A step reads the destinations that have its name; the first step, or the one that the source names,
reads the source. There is a topic between two steps, so each step is exactly once by itself.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_validator

from outbox.errors import BadSettings
from spark_jobs.operators.aggregation import loading
from spark_jobs.operators.aggregation.config import (
    Connection,
    Count,
    Destination,
    Model,
    Name,
    Step,
)
from spark_jobs.operators.aggregation.settings import SCRIPTS, resolve
from spark_jobs.query.settings import DedupSettings, SparkSettings, StateSettings
from spark_jobs.source import topics
from spark_jobs.source.config import Expired
from spark_jobs.stateful.settings import JOBS, AggregationJob, StatefulSettings

Job: TypeAlias = DedupSettings | StatefulSettings


class Source(Model):
    """The source of events."""

    name: Name
    type: Literal["source"]
    topic: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """The topic that is read, or a list of them, with the patterns of a job's `source.topics`."""
    config: Connection
    destination: Name | None = None
    """The step that reads it; by default, the first."""
    starting_offsets: str = "earliest"
    """Where a new checkpoint begins: `earliest`, `latest`, or Spark's JSON of offsets."""

    @field_validator("topic")
    @classmethod
    def _can_match(cls, found: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if (problem := topics.problem((found,) if isinstance(found, str) else found)) is not None:
            raise ValueError(problem)
        return found

    def topics(self) -> tuple[str, ...]:
        return (self.topic,) if isinstance(self.topic, str) else self.topic


class OperatorStep(Model):
    """`{type: "pairing"}`, `"sessions"` or `"delay"`: an operator with its own settings."""

    name: Name
    type: Literal["pairing", "sessions", "delay"]
    operator: dict[str, Any]
    """The `[operator]` table that replay reads."""
    destination: Destination
    error: Destination
    late: Destination | None = None

    def destinations(self) -> tuple[Destination, ...]:
        found = (self.destination, self.error, self.late)
        return tuple(each for each in found if each is not None)


class DedupStep(Model):
    """`{type: "dedup"}`: a policy with its own settings."""

    name: Name
    type: Literal["dedup"]
    operator: dict[str, Any]
    tables: dict[str, Any] = Field(default_factory=dict)
    """Further tables of its settings: `retry`, `recirculation`."""
    destination: Destination
    retry: Destination
    error: Destination

    def destinations(self) -> tuple[Destination, ...]:
        return self.destination, self.retry, self.error


AnyStep: TypeAlias = Annotated[Step | OperatorStep | DedupStep, Field(discriminator="type")]


class Flow(Model):
    """The contents of a flow's file."""

    source: Source
    connections: Annotated[dict[Name, dict[str, Any]], Field(min_length=1, repr=False)]
    """librdkafka's properties, by the names that destinations use."""
    steps: Annotated[tuple[AnyStep, ...], Field(min_length=1)]
    """Steps, or the files with them."""
    scripts: tuple[Name, ...] = (SCRIPTS, ".")
    """The script folders to which `classpath` refers."""
    max_offsets_per_trigger: Count = 100_000
    """The most events in one micro-batch of a step."""
    max_bytes_per_trigger: Count | None = None
    """The most bytes of values in one, about; no value: any number."""
    skip: tuple[str, ...] = ()
    """Places of records that no step reads, such as `orders/0/42`."""
    expired: Expired = "refuse"
    """
    The answer to records that a topic has deleted before a step read them: `refuse` stops the
    flow; `skip` goes on.
    """
    state: StateSettings = StateSettings()
    spark: SparkSettings


def load_flow(file: Path, environ: Mapping[str, str]) -> tuple[SparkSettings, dict[str, Job]]:
    """
    Return the settings for running a flow, and the job of each of its steps by name.

    Raises:
        BadSettings: the file, or one to which it refers, is not valid.
    """
    found = loading.read(file)
    if "steps" not in found and found.get("type") == "aggregation":
        msg = (
            f"{file} is one step: name it in the `steps` of a file that has `source`, "
            "`connections` and `spark`, too"
        )
        raise BadSettings(msg)
    files: dict[int, Path] = {}
    if isinstance(found.get("steps"), list):
        steps = [*found["steps"]]
        for number, step in enumerate(steps):
            if isinstance(step, str):
                files[number] = file.parent / step
                steps[number] = loading.read(files[number])
        found = {**found, "steps": steps}
    named = [f"steps.{number} is {each}" for number, each in files.items()]
    flow = loading.checked(Flow, found, "; ".join([str(file), *named]))
    _Names(flow).check()
    jobs = _Jobs(flow, file, environ)
    return flow.spark, {
        step.name: jobs.of(step, files.get(number, file).parent)
        for number, step in enumerate(flow.steps)
    }


class _Names:
    """Checks that the names in a flow lead somewhere."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._steps = [step.name for step in flow.steps]

    def check(self) -> None:
        for problem in self._problems():
            raise BadSettings(problem)

    def _problems(self) -> Iterator[str]:
        flow = self._flow
        if len({*self._steps}) != len(self._steps):
            yield f"steps have the same name: {', '.join(self._steps)}"
        if (first := flow.source.destination) is not None and first not in self._steps:
            yield f"source.destination: there is no step {first}"
        for number, step in enumerate(flow.steps):
            if not _sources(flow, step.name):
                yield f"steps.{number}: no destination and no source leads to {step.name}"
        for number, step in enumerate(flow.steps):
            written = _written(step, besides=flow.source.destination or flow.steps[0].name)
            if (problem := topics.read_by_pattern(written, flow.source.topics())) is not None:
                yield f"steps.{number}: {problem}"
        yield from self._loops()
        used = [flow.source.config, *(to.config for s in flow.steps for to in s.destinations())]
        for connection in used:
            if connection.name not in flow.connections:
                known = ", ".join(flow.connections)
                yield f"connections: there is no {connection.name}; there is {known}"

    def _loops(self) -> Iterator[str]:
        """Yield what leads back to an earlier step, and does not name that step."""
        flow = self._flow
        reads = {name: {topic for topic, _ in _sources(flow, name)} for name in self._steps}
        after = {
            step.name: {name for name in self._steps if reads[name] & {*_all_written(step)}}
            for step in flow.steps
        }
        for number, step in enumerate(flow.steps):
            for name in self._steps:
                again = reads[name] & {*_written(step, besides=name)}
                if again and name != step.name and step.name in _reached(name, after):
                    yield (
                        f"steps.{number}: topic {min(again)!r} is written by {step.name}, and "
                        f"read before it by {name}: its records would never end. Write to another "
                        f"topic, or name {name} in the destination to mean it"
                    )


def _reached(name: str, after: Mapping[str, set[str]]) -> set[str]:
    """Return the steps that get what leaves the step `name`."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = after[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _sources(flow: Flow, name: str) -> list[tuple[str, str]]:
    """Return the topics that a step reads, each with its connection."""
    is_first = name == (flow.source.destination or flow.steps[0].name)
    source = [(topic, flow.source.config.name) for topic in flow.source.topics()]
    chained = [
        (to.topic, to.config.name)
        for step in flow.steps
        for to in step.destinations()
        if to.name == name
    ]
    return list(dict.fromkeys([*(source if is_first else []), *chained]))


def _all_written(step: AnyStep) -> list[str]:
    """Return the topics that a step writes."""
    return _written(step, besides="")


def _written(step: AnyStep, *, besides: str) -> list[str]:
    """Return the topics that a step writes, without those that lead to the step `besides`."""
    more = step.target_topics if isinstance(step, Step) else ()
    return [*(to.topic for to in step.destinations() if to.name != besides), *more]


class _Jobs:
    """Makes the jobs of a flow's steps."""

    def __init__(self, flow: Flow, file: Path, environ: Mapping[str, str]) -> None:
        self._flow, self._file, self._environ = flow, file, environ

    def of(self, step: AnyStep, folder: Path) -> Job:
        origin = f"{self._file}, step {step.name}"
        reading, writing = self._reading(step, origin), step.destination.config.name
        found = self._common(step)
        if not isinstance(step, Step):
            if reading != writing:
                msg = f"{origin}: {step.type} reads and writes on one connection"
                raise BadSettings(msg)
            found["operator"] = step.operator
            if isinstance(step, DedupStep):
                found = {**step.tables, **found}
                return loading.checked(DedupSettings, found, origin, self._environ)
            return loading.checked(JOBS[step.type], found, origin, self._environ)
        try:
            found["operator"] = resolve(step, folder, self._folders(folder))
        except BadSettings as error:
            msg = f"{origin}: {error}"
            raise BadSettings(msg) from error
        found["reading"] = self._flow.connections[reading]
        return loading.checked(AggregationJob, found, origin, self._environ)

    def _reading(self, step: AnyStep, origin: str) -> str:
        connections = {name for _, name in _sources(self._flow, step.name)}
        if len(connections) > 1:
            msg = f"{origin}: reads from several connections: {', '.join(sorted(connections))}"
            raise BadSettings(msg)
        return connections.pop()

    def _common(self, step: AnyStep) -> dict[str, Any]:
        flow = self._flow
        found = {
            "kafka": flow.connections[step.destination.config.name],
            "source": {
                "topics": tuple(topic for topic, _ in _sources(flow, step.name)),
                "starting_offsets": flow.source.starting_offsets,
                "max_offsets_per_trigger": flow.max_offsets_per_trigger,
                "max_bytes_per_trigger": flow.max_bytes_per_trigger,
                "skip": flow.skip,
                "expired": flow.expired,
            },
            "output": _output(step),
            "spark": {
                **flow.spark.model_dump(),
                "query": f"{flow.spark.query}.{step.name}",
                "checkpoint": f"{flow.spark.checkpoint}/{step.name}",
            },
        }
        return found if isinstance(step, DedupStep) else found | {"state": flow.state.model_dump()}

    def _folders(self, folder: Path) -> list[Path]:
        found = [self._file.parent / each for each in self._flow.scripts]
        return found if folder == self._file.parent else [*found, folder / SCRIPTS, folder]


def _output(step: AnyStep) -> dict[str, Any]:
    found = {"topic": step.destination.topic, "dead_letter_topic": step.error.topic}
    if isinstance(step, DedupStep):
        return found | {"retry_topic": step.retry.topic}
    return found | ({} if step.late is None else {"late_topic": step.late.topic})
