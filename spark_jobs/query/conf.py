"""The table `[spark.conf]`: any configuration of Spark, but for what would break a job."""

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import Field, ValidationInfo, WrapValidator

from dovecote.process import strict_json
from dovecote.process.settings.values import pointed, table
from outbox.secrets import Reread

_ADDRESSES = (
    "it limits the addresses of Python processes and not their memory. Threads and libraries "
    "reserve many more addresses than they use, so it ends them. Leave it out, and raise "
    "spark.executor.memoryOverhead to give Python memory"
)

FORCED: Mapping[str, tuple[str, str]] = {
    "spark.sql.adaptive.enabled": ("false", "it changes shuffle partitions from batch to batch"),
    "spark.sql.streaming.noDataMicroBatches.enabled": (
        "true",
        "without such batches no clock closes anything",
    ),
    "spark.sql.streaming.noDataProgressEventInterval": (
        "10000",
        "`/readyz` must hear that a job is idle",
    ),
    "spark.sql.streaming.stopTimeout": (
        "0",
        "a job ends after its batch, however long that takes",
    ),
    "spark.python.worker.killOnIdleTimeout": ("false", "it would end a slow handler"),
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": ("false", "the same"),
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": (
        "false",
        "it hides why a job ended",
    ),
    "spark.sql.execution.arrow.useLargeVarTypes": ("false", "rows have Arrow's usual types"),
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": ("false", "the same"),
    "spark.sql.execution.pyspark.binaryAsBytes": ("true", "rows have bytes"),
}
"""Configuration of Spark that has one value in every job, whatever the cluster says; and why."""

REFUSED: Mapping[str, str] = {
    "spark.speculation": "a second copy of a task would handle its records twice",
    "spark.executor.pyspark.memory": _ADDRESSES,
    "spark.sql.planner.pythonExecution.memory": _ADDRESSES,
}
"""Configuration with which no job runs, unless it is `false`, wherever it comes from; and why."""

_ELSEWHERE = {
    "spark.sql.streaming.checkpointLocation": "set `spark.checkpoint` instead",
    "spark.master": "set `spark.master` in its own field",
}


def refusal(conf: Mapping[str, str]) -> str | None:
    """Return why no job runs with this configuration of Spark, or None."""
    for name, reason in REFUSED.items():
        if (value := conf.get(name, "false")).lower() != "false":
            return f"{name} is {value}: {reason}"
    return None


_SECRET = re.compile(
    r"(password|passwd|secret|passphrase|secret\.key|session\.token|private\.key"
    r"|account\.key(\.[\w.-]+)?|client\.secret(\.[\w.-]+)?|sas\.fixed\.token[\w.-]*)$",
    re.IGNORECASE,
)
"""Names of secrets of Spark itself, and of the file systems of S3, Azure and Google."""


def is_secret(name: str, value: str) -> bool:
    """Return whether a property must not be shown, for instance on a command line."""
    return isinstance(value, Reread) or _SECRET.search(name) is not None


def _conf(value: object, _: object, info: ValidationInfo) -> dict[str, str]:
    """Return the table; what was a pointer stays recognisable as a secret."""
    if isinstance(value, Mapping) and value.keys() == {"env"}:  # the whole table, in a variable
        value = strict_json.loads(str(pointed(value, info)))
    if not isinstance(value, Mapping):
        msg = 'must be a table of Spark\'s configuration, such as "spark.executor.memory"'
        raise ValueError(msg)  # noqa: TRY004  # pydantic turns only ValueError into a message
    found = table(value, info, _SECRET)
    _require_allowed(found)
    return {
        str(name): _secret(text) if isinstance(value[name], Mapping) else text
        for name, text in found.items()
    }


def _secret(text: str) -> str:
    def read(*, anew: bool) -> str:  # noqa: ARG001  # it stays what it is
        return text

    return text if isinstance(text, Reread) else Reread(read)


def _require_allowed(conf: Mapping[str, str]) -> None:
    for name, reason in _ELSEWHERE.items():
        if name in conf:
            msg = f"{name} cannot be set: {reason}"
            raise ValueError(msg)
    for name, (value, reason) in FORCED.items():
        if conf.get(name, value).lower() != value:
            msg = f"{name} must be {value}: {reason}"
            raise ValueError(msg)
    if (problem := refusal(conf)) is not None:
        raise ValueError(problem)


SparkConf: TypeAlias = Annotated[
    dict[str, str], WrapValidator(_conf), Field(repr=False, json_schema_extra={"open": True})
]
"""Any property of Spark; its values never appear in a repr."""
