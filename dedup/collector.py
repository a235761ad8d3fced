"""Have Python look for garbage in cycles seldom: a consumer makes many objects, and no cycles."""

import gc

_ALLOCATIONS = 200_000


def relax() -> None:
    """
    Leave what is loaded so far out of collections, and collect less often.

    For the process as a whole: it halves what a record costs where handlers do little.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 100)
