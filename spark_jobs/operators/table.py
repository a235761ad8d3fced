"""The stateful operators, by their names in settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.reading import OperatorSettings
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import DelaySettings, PairingSettings, SessionsSettings
from spark_jobs.operators.step import Operator


@dataclass(frozen=True, slots=True)
class Entry:
    """An operator, and the class of its settings."""

    settings: type[OperatorSettings]
    make: Callable[[Any], Operator[Any]]


def _aggregation(settings: AggregationSettings) -> Operator[Any]:
    from spark_jobs.operators.aggregation.guard import (
        make,
    )  # its formats need more than other operators

    return make(settings)


TABLE: Mapping[str, Entry] = MappingProxyType(
    {
        "aggregation": Entry(AggregationSettings, _aggregation),
        "delay": Entry(DelaySettings, Delay),
        "pairing": Entry(PairingSettings, Pairing),
        "sessions": Entry(SessionsSettings, Sessions),
    }
)


def operator(settings: OperatorSettings) -> Operator[Any]:
    """
    Return the operator that `settings` describe.

    Raises:
        BadSettings: its aggregate does not exist.
    """
    return TABLE[settings.type].make(settings)


def require(settings: OperatorSettings) -> None:
    """
    Check that `settings` describe an operator.

    Raises:
        BadSettings: its aggregate does not exist.
    """
    operator(settings)
