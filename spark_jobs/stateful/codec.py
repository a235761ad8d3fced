"""The bytes of an operator's states, for the store of their parts."""

from dataclasses import dataclass
from typing import Any

from spark_jobs.operators import encoding, extent
from spark_jobs.operators.changes import Delta
from spark_jobs.operators.step import Operator


@dataclass(frozen=True, slots=True)
class OperatorCodec:
    """Encodes the states of an operator, and their changes."""

    operator: Operator[Any]

    @property
    def name(self) -> str:
        return encoding.name_of(self.operator)

    @property
    def has_parts(self) -> bool:
        """
        Whether a large state is stored in parts.

        A state of an aggregation is always whole. The helper of the scripts alone can read it, and
        the events of its large windows are in chunks already.
        """
        return encoding.has_deltas(self.operator)

    def encode(self, state: Any) -> bytes:  # noqa: ANN401  # the operator's own
        return encoding.encode(self.operator, state)

    def decode(self, data: bytes) -> Any:  # noqa: ANN401  # as above
        return encoding.decode(self.operator, data)

    def delta(self, state: Any) -> Delta | None:  # noqa: ANN401  # as above
        return encoding.delta(self.operator, state)

    def apply(self, state: Any, data: bytes) -> None:  # noqa: ANN401  # as above
        encoding.apply(self.operator, state, data)

    def settle(self, state: Any, *, is_all: bool) -> None:  # noqa: ANN401  # as above
        if self.has_parts:
            state.changes.settle(is_all=is_all)

    def count(self, state: Any) -> int:  # noqa: ANN401  # as above
        return extent.keys(state)
