"""The claim of one assignment to its partition, by which the inbox tells it from later ones."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Claim:
    """
    The claim of one assignment, shared by its stretch and its records.

    Each assignment has its own: a handler still running for an older assignment of the same
    partition commits nothing under this one.
    """

    number: int = 0
    """Changes when the partition is claimed again. 0: not claimed yet, which the inbox refuses."""

    refused: int = 0
    """The number under which something was refused because a newer claim exists."""
