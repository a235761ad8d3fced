"""The stateful operators as they were before a large state was stored in parts."""

from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from spark_jobs.stateful.codec import OperatorCodec
from spark_jobs.stateful.host import Bucket
from spark_jobs.stateful.parts import Kept, Stored


class _Handle:
    """Spark's handle, without maps."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle

    def getMapState(self, *_: Any) -> None:  # noqa: N802  # Spark's name
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


class WholeBucket(Bucket):
    """Stores each state as one value, and knows of no other variable."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(_Handle(handle))  # type: ignore[arg-type]  # as much of it as is used
        # Spark uses its workers again, and an earlier version has none of our kept states.
        self._stored = Stored(OperatorCodec(self._operator), None, Kept(), "")
