"""Listen to Spark's reports about its queries, in the JSON that it makes of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

Progress = Callable[[Mapping[str, Any]], None]
"""Gets Spark's report on a finished batch."""
Idle = Callable[[str], None]
"""Gets the run of a query that had nothing to do."""


@contextmanager
def listening(spark: SparkSession, progress: Progress, idle: Idle) -> Iterator[None]:
    """
    Call `progress` and `idle` for all queries of `spark` meanwhile, in a thread of their own.

    PySpark's own listeners make an object for each number of an event, with a call to Java for
    each. For a batch that has nothing to do, that is most of the work.
    """
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]  # it has no types  # noqa: SLF001  # no public way
    streaming = spark.sparkContext._jvm.org.apache.spark.sql.streaming  # type: ignore[union-attr]  # it is there  # noqa: SLF001  # as above
    listener = streaming.PythonStreamingQueryListenerWrapper(_Listener(progress, idle))
    queries = spark.streams._jsqm  # noqa: SLF001  # as above
    queries.addListener(listener)
    try:
        yield
    finally:
        queries.removeListener(listener)


class _Listener:
    """The object that Java calls."""

    def __init__(self, progress: Progress, idle: Idle) -> None:
        self._progress, self._idle = progress, idle

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802, ANN401  # Spark's name and object
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802, ANN401  # as above
        self._progress(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802, ANN401  # as above
        self._idle(event.runId().toString())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ANN401  # as above
        """Do nothing: the thread that waits for the query hears of its end."""

    class Java:
        """Names the interface for py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
