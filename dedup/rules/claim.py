"""The claim of one assignment to its partition, by which the inbox tells it from later ones."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Claim:
    """
    What an assignment has claimed; the stretch has it, and so have its records.

    It is never that of another assignment: who is still at work for an older one of the same
    partition commits nothing in the name of this.
    """

    number: int = 0
    """Changes when it is claimed anew. 0: not yet, which the inbox refuses."""

    refused: int = 0
    """The number in whose name something was refused, as a newer claim was there."""
