"""The bucket of each record: records that an operator holds for the same key share one."""

from collections.abc import Sequence
from dataclasses import dataclass

from outbox.envelope import Record
from outbox.errors import DovecoteError
from outbox.kafka import fields_of
from spark_jobs.operators.aggregation.config import RecordKey
from spark_jobs.operators.aggregation.guard import Guarded
from spark_jobs.operators.aggregation.keys import key_of
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.reading import OperatorSettings, field_keys
from spark_jobs.operators.settings import WindowedSettings
from spark_jobs.rows.homes import spread
from spark_jobs.rows.packets import Bucketing
from spark_jobs.rows.records import Message


def bucketing(settings: OperatorSettings) -> Bucketing:
    """Return how the records of an operator are laid into buckets."""
    if isinstance(settings, AggregationSettings):
        return ByKey() if isinstance(settings.step.key, RecordKey) else ByStep(settings)
    if isinstance(settings, WindowedSettings):
        if settings.stream_time != "per_key":
            return ByClock(is_global=settings.stream_time == "global")
        if settings.key != "record":
            return ByFields(settings.key)
    return ByKey()


@dataclass(frozen=True, slots=True)
class ByClock:
    """Records that move the same clock share a bucket."""

    is_global: bool

    def __call__(self, partition: int, messages: Sequence[Message], buckets: int) -> int:  # noqa: ARG002  # as the protocol has it
        return 0 if self.is_global else partition % buckets


@dataclass(frozen=True, slots=True)
class ByKey:
    """The record's own key; a record without one affects no other."""

    def __call__(self, partition: int, messages: Sequence[Message], buckets: int) -> Sequence[int]:
        return spread([each.key() for each in messages], buckets, otherwise=partition)


@dataclass(frozen=True, slots=True)
class ByFields:
    """Fields of the value; a record whose value cannot be read affects no other."""

    names: tuple[str, ...]

    def __call__(self, partition: int, messages: Sequence[Message], buckets: int) -> Sequence[int]:
        found = field_keys(self.names, (each.value() for each in messages))
        return spread(found, buckets, otherwise=partition)


@dataclass(frozen=True, slots=True)
class ByStep:
    """Finds the key of an aggregation: headers, a hash, or the answer of its script."""

    settings: AggregationSettings

    def __call__(self, partition: int, messages: Sequence[Message], buckets: int) -> Sequence[int]:
        records = [Record(*fields_of(each)) for each in messages]
        return spread(self._keys(records), buckets, otherwise=partition)

    def _keys(self, records: Sequence[Record]) -> Sequence[bytes | None]:
        """Return the keys; an error is None here, and is raised again by the operator."""
        if (of := key_of(self.settings.step.key)) is None:
            return Guarded(self.settings).keys(records)
        found: list[bytes | None] = []
        for record in records:
            try:
                found.append(of(record))
            except DovecoteError:
                found.append(None)
        return found
