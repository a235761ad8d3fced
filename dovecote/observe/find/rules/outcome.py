"""Decide what became of a record that a deduplicating job took, and wrote nowhere."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dedup.rules.unread import Place
from dovecote.observe.find.rules.facts import Outcome

POLICIES = frozenset({"first_match", "exact", "latest"})
"""The policies of jobs of which this is known."""

_SKIPS = ("filtered", "superseded", "duplicate", "handler")
_WORDS = {
    "filtered": "its filter said no",
    "superseded": "another record of its key won",
    "duplicate": "it repeats another record",
    "handler": "the handler skipped it",
    "handled": "a handler took it, and wrote nothing under its id",
    "written": "a record was written that its topic has deleted by now",
}


class Rival(NamedTuple):
    """Another record of the same key."""

    place: Place
    batch: int | None
    """The batch that took it; None: not known."""
    name: str
    """Its event: `id@source`."""
    written: Place | None
    """Where the job wrote it; None: it did not, as far as its topics show."""


class Known(NamedTuple):
    """All that the job's own stores and topics say of a record that it wrote nowhere."""

    place: Place
    name: str
    """Its event: `id@source`."""
    batch: int
    counts: Mapping[str, int]
    """The results of the batch with the records of this lane, from its markers: kinds of skips,
    `handled`, `retried` and `dead`. Empty: no marker of the batch is left."""
    whole: bool
    """Whether the job's topics still have their beginnings."""
    policy: str
    handler: bool
    """Whether a handler may have taken it."""
    remembers: bool
    """Whether records of earlier batches count."""
    rivals: Sequence[Rival] | None
    """The other records of its key; None: they are not known."""
    results: Sequence[Place] = ()
    """Records of the job's topics that a handler made of it, under ids of their own."""


def outcome(known: Known) -> Outcome:
    """Return what became of a record, and what it rests on; kind `taken`: it cannot be told."""
    if known.results:
        more = "" if len(known.results) == 1 else f" and {len(known.results) - 1} more"
        return Outcome("handled", f"its handler made {known.results[0]}{more} of it")
    if (found := _by_winner(known)) is not None:
        return found
    kinds = _possible(known)
    if len(kinds) == 1:
        kind = kinds[0]
        count = f"{known.counts[kind]:,} such" if known.counts.get(kind) else "no other"
        return Outcome(kind, f"{_WORDS[kind]} (of records without a result its batch has {count})")
    if not kinds:
        why = "no marker of that batch is left, and no other record of its key tells"
        return Outcome("taken", f"it was skipped, or its result has another id; {why}")
    told = " or ".join(_WORDS[each] for each in kinds)
    return Outcome("taken", f"{told}: its batch has records of each of these")


def is_result(id_: str, other: str) -> bool:
    """Return whether an id is one that a job gives to a result of the event `id_`."""
    head, dot, number = other.rpartition(".")
    return bool(dot) and head == id_ and number.isdecimal()


def _possible(known: Known) -> list[str]:
    """Return the kinds of results that a record without a trace may have had."""
    counts = known.counts
    kinds = [
        each for each in ("filtered", "superseded", "duplicate", "handler") if counts.get(each)
    ]
    if not known.handler and "handler" in kinds:
        kinds.remove("handler")
    if known.handler and counts.get("handled"):
        kinds.append("handled")
    if not known.whole and any(counts.get(each) for each in ("handled", "retried", "dead")):
        kinds.append("written")
    # Nothing of its key was written by its batch, so nothing can have won over it.
    is_alone = known.whole and not known.handler and known.rivals is not None
    if is_alone and known.policy != "exact":
        lost = {"superseded"} if known.remembers else {"superseded", "duplicate"}
        kinds = [each for each in kinds if each not in lost]
    return kinds


def _by_winner(known: Known) -> Outcome | None:
    """Return what follows from the record of the same key that was written; None: nothing."""
    written = [
        each for each in known.rivals or () if each.written is not None and each.batch is not None
    ]
    before = [
        each
        for each in written
        if each.name == known.name and each.place < known.place and _counts_for(known, each)
    ]
    winner = next((each for each in written if each.batch == known.batch), None)
    if before and (winner is None or known.policy == "exact"):
        # A duplicate that the filter refuses counts as filtered.
        return None if known.counts.get("filtered") else _duplicate(before[-1])
    if winner is None or known.policy == "exact":
        return None
    is_after = known.place > winner.place
    if is_after == (known.policy == "first_match"):
        return _duplicate(winner) if winner.name == known.name else _superseded(winner)
    if known.handler:
        return Outcome("taken", "its filter or its handler passed it over")
    return Outcome("filtered", f"its filter said no, and {winner.name} at {winner.place} won")


def _counts_for(known: Known, rival: Rival) -> bool:
    """Return whether the policy knows another record when it decides."""
    if rival.batch is None:
        return False
    return rival.batch == known.batch or (known.remembers and rival.batch < known.batch)


def _superseded(winner: Rival) -> Outcome:
    why = f"superseded by {winner.name} at {winner.place}, which is written to {winner.written}"
    return Outcome("superseded", why)


def _duplicate(first: Rival) -> Outcome:
    why = f"a duplicate of {first.place}, which is written to {first.written}"
    return Outcome("duplicate", why)
