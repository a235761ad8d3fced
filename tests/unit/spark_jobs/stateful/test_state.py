"""The errors when Spark does not hand over the state."""

from typing import cast
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from spark_jobs.errors import QueryFailed
from spark_jobs.stateful.settings import JOBS, StatefulSettings
from spark_jobs.stateful.state import alarms

SETTINGS: StatefulSettings = JOBS["sessions"].model_validate(
    {
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "source": {"topics": ["clicks"]},
        "operator": {"type": "sessions", "gap": "5s"},
        "output": {"topic": "out", "dead_letter_topic": "dead"},
        "spark": {"query": "q", "checkpoint": "/c"},
    }
)


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer is empty"), ConnectionResetError("reset"), EOFError()]
)
def test_a_connection_to_spark_that_breaks_is_an_error_that_an_idle_query_outlasts(
    error: Exception,
) -> None:
    spark = MagicMock()
    spark.read.format.side_effect = error
    with pytest.raises(QueryFailed, match="Spark cannot read the state in /c: "):
        alarms(cast("SparkSession", spark), SETTINGS)
