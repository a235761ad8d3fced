"""Run one step of an aggregation."""

from pathlib import Path
from typing import Any

from tests.unit.spark_jobs.operators.aggregation.steps import (
    event,
    running,
    step,
    values,
)

ECHO = "def aggregate(IN, Env):\n    return struct(OUT={expression})\n"
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}],
}


def said_of(folder: Path, expression: str, **changes: Any) -> Any:
    config = step(dsl={"path": "aggregate.star"}, **changes)
    given = running(folder, config, aggregate=ECHO.replace("{expression}", expression))
    (found,) = values(given.at(1000, event(id=1, time=5), event(id=2, time=6)))
    return found
