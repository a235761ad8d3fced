"""A step in memory: its file, its scripts, and records at moments."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outbox.envelope import Pair, Record
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.scripts import Scripts
from spark_jobs.operators.aggregation.settings import AggregationSettings, load_step
from spark_jobs.operators.aggregation.state import decoded, encoded
from spark_jobs.operators.aggregation.windows import WindowState
from spark_jobs.operators.step import Failed, Input, Late, Made, Output, Skipped

COUNT = {"type": "count", "count": 2, "timeout": 100}
DSL = {"type": "dsl", "path": "trigger.star", "timeout": 100}
DAILY = {"type": "time", "time": "11:05:00", "timePattern": "HH:mm:ss", "maxEmptyIntervals": 3}
SUMS = "def aggregate(IN, Env):\n    return struct(OUT={'ids': [e['id'] for e in IN]})\n"


def place(topic: str) -> dict[str, Any]:
    """Return a destination."""
    config = {"type": "kafka", "name": "output"}
    return {"name": topic, "type": "destination", "topic": topic, "config": config}


def step(**fields: Any) -> dict[str, Any]:
    """Return a configuration, in which these fields replace its own."""
    found = {
        "name": "aggregation",
        "type": "aggregation",
        "key": {"type": "key"},
        "trigger": COUNT,
        "destination": place("output"),
        "error": place("deadletter"),
    }
    return {**found, **fields}


def loaded(folder: Path, config: Mapping[str, Any], **scripts: str) -> AggregationSettings:
    """Write the file and its scripts, and load it."""
    (folder / "scripts").mkdir(exist_ok=True)
    for name, text in scripts.items():
        (folder / "scripts" / f"{name}.star").write_text(text)
    file = folder / "step.json"
    file.write_text(json.dumps(config))
    return load_step(file)


class Running:
    """A step that goes on; its state is encoded and decoded after each step."""

    def __init__(self, settings: AggregationSettings) -> None:
        self.operator = Aggregation(settings, Scripts(settings))
        self.state: WindowState = self.operator.start()
        self.deadline: int | None = None
        self._offset = 0

    def at(self, now: int, *records: Record, behind: bool = False) -> list[Output]:
        inputs = []
        for each in records:
            record = each._replace(offset=self._offset)
            self._offset += 1
            rest = (record.topic, record.partition, record.offset, record.value)
            inputs.append(Input(record.key, record.timestamp, record, *rest))
        done = self.operator.step(self.state, inputs, now, behind=behind)
        self.deadline = done.deadline
        self.state = decoded(self.operator, encoded(done.state))
        return done.outputs

    def end(self, now: int) -> list[Output]:
        done = self.operator.finish(self.state, now)
        self.state = done.state
        return done.outputs


def running(folder: Path, config: Mapping[str, Any], **scripts: str) -> Running:
    return Running(loaded(folder, config, **scripts))


def event(
    value: Any = None,
    *,
    time: int = 0,
    key: str | None = "k",
    headers: Sequence[Pair] = (),
    topic: str = "orders",
    **fields: Any,
) -> Record:
    """Return a record; keyword arguments are fields of its value."""
    data = value if isinstance(value, bytes) else json.dumps(fields if value is None else value)
    return Record(
        topic,
        0,
        0,
        time,
        None if key is None else key.encode(),
        data if isinstance(data, bytes) else data.encode(),
        list(headers),
    )


def values(outputs: Sequence[Output]) -> list[Any]:
    """Return the values of the results."""
    return [
        json.loads(each.value or b"") if each.is_passed else each.shown
        for each in outputs
        if isinstance(each, Made)
    ]


def reasons(outputs: Sequence[Output]) -> list[str]:
    """Return the reason of each result, skip, late record or error."""
    return [each.reason for each in outputs if isinstance(each, Made | Skipped | Late | Failed)]
