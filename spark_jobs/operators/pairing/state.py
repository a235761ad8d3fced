"""The state of the operator: keys, with their calls."""

from spark_jobs.operators.keyed import KeyedState
from spark_jobs.operators.pairing.calls import CallsOfKey


class PairState(KeyedState[CallsOfKey]):
    """The calls of many keys; a shared clock has alarms for their beginnings."""

    __slots__ = ()
