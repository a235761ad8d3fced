"""Cut off brokers that outlive the command that started them."""

from pathlib import Path

from dovecote.devstack.detached import GATES, StackState, status
from dovecote.devstack.errors import StackError
from dovecote.devstack.kafka.broker import isolating
from dovecote.devstack.network.gates import shut


def isolate(
    home: Path | None, number: int, *, from_peers: bool, from_clients: bool, reset: bool
) -> None:
    """
    Cut one broker off from the others, from clients, or from both, and open all other gates.

    Raises:
        StackError: the stack has one broker, or none of that number, or it does not run.
    """
    state = _with_gates(home)
    if not 1 <= number <= state.brokers:
        msg = f"there is no broker {number}; there are {state.brokers}, from 1"
        raise StackError(msg)
    others = [other for other in range(1, state.brokers + 1) if other != number]
    cut = isolating(number, others, from_peers=from_peers, from_clients=from_clients)
    door = state.members[GATES].address
    shut(door, held=() if reset else cut, broken=cut if reset else ())


def heal(home: Path | None) -> None:
    """
    Open all gates; held data arrives.

    Raises:
        StackError: the stack has one broker, or it does not run.
    """
    shut(_with_gates(home).members[GATES].address)


def _with_gates(home: Path | None) -> StackState:
    state = status(home)
    if state is None or GATES not in state.members or not state.members[GATES].running:
        msg = "no stack with gates runs here; start one with: dovecote stack up --brokers 3"
        raise StackError(msg)
    return state
