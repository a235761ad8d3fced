"""Count what a state holds."""

from typing import Any

from spark_jobs.operators import delay
from spark_jobs.operators.aggregation import windows as aggregation
from spark_jobs.operators.pairing.state import PairState
from spark_jobs.operators.sessions.keys import SessionState


def keys(state: Any) -> int:  # noqa: ANN401  # the operator's own
    """Return how many keys are known; for `delay`, how many records wait."""
    return len(getattr(state, "keys", ())) or len(getattr(state, "waiting", ()))


def opened(state: Any) -> int:  # noqa: ANN401  # as above
    """
    Return how many sessions, windows, unpaired events or waiting records are still to come out.
    """
    match state:
        case SessionState():
            return sum(len(held.open) for held in state.keys.values())
        case PairState():
            return sum(len(held.events) + len(held.open) for held in state.keys.values())
        case delay.DelayState():
            return len(state.waiting)
        case aggregation.WindowState():
            return sum(held.window is not None for held in state.keys.values())
        case _:
            return getattr(state, "open", 0)
