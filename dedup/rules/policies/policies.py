"""
Choose which records of one key are handled, with a reason for each of the others.

The policies are pure, and generic over the record: a policy sees one key's records in order,
through three functions that it calls as rarely as it can. Every record gets exactly one verdict:

first_match   the first that passes the filter and is handled without failure wins
exact         each identity is handled once
latest        the newest that passes the filter is handled

Verdicts come lazily: a record is handled when its verdict is requested.

A generator cannot await on behalf of the functions that it calls. For a handler that is awaited, a
policy gets none: it asks for the verdict on a record instead, and `awaited` sends it.
"""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again, Dead, Done, Result, Retry, Skip, failure, no_result

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)

FILTERED = "filtered"


# Verdicts are not frozen: there is at least one for each record, and a frozen one takes three
# times as long to make.


@dataclass(slots=True)
class Handled(Generic[R]):
    """The handler took the record."""

    record: R
    result: Done | Again


@dataclass(slots=True)
class Skipped(Generic[R]):
    """
    The record needs no handling.

    The reason is `filtered`, `superseded by <id>`, `duplicate of <id>` or `handler: <reason>`.
    """

    record: R
    reason: str


@dataclass(slots=True)
class Failed(Generic[R]):
    """Its filter or handler failed: the record goes to a retry topic or to the dead letters."""

    record: R
    result: Retry | Dead


Verdict: TypeAlias = Handled[R] | Skipped[R] | Failed[R]

Verdicts: TypeAlias = Generator[Verdict[R], Verdict[R], None]
"""
The verdicts, in the order of the records.

Without a handler, `Failed(record, ASKED)` is none of them: it asks for the verdict on the record,
which is to be sent.
"""

ASKED: Final = Retry("the handler has yet to answer")


PassOver: TypeAlias = Callable[[Iterable[R], R, Callable[[R], Identity]], Iterable[Skipped[R]]]
"""
Skips records in favour of a winner, as `passed_over` does.

A caller that only counts those may return nothing: most records of a batch are passed over.
"""


class Policy(Protocol):
    """
    One verdict per record, over the records of one key in order.

    `matches` and `handle` may raise: `NonRetriable` makes the record `Dead`, any other exception
    makes it `Retry`. `identity` must not raise.
    """

    def __call__(
        self,
        records: Iterable[R],
        *,
        matches: Callable[[R], bool],
        handle: Callable[[R], Result],
        identity: Callable[[R], Identity],
    ) -> Iterator[Verdict[R]]: ...


class AwaitedPolicy(Protocol):
    """As `Policy`, for a handler that is awaited."""

    def __call__(
        self,
        records: Iterable[R],
        *,
        matches: Callable[[R], bool],
        handle: Callable[[R], Awaitable[Result]],
        identity: Callable[[R], Identity],
    ) -> AsyncIterator[Verdict[R]]: ...


class AskingPolicy(Protocol):
    """A `Policy` that also does without a handler: it asks for verdicts."""

    def __call__(
        self,
        records: Iterable[R],
        *,
        matches: Callable[[R], bool],
        handle: Callable[[R], Result] | None,
        identity: Callable[[R], Identity],
    ) -> Verdicts[R]: ...


def first_match(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Result] | None,
    identity: Callable[[R], Identity],
    pass_over: "PassOver[R] | None" = None,
) -> Verdicts[R]:
    """
    Try the records in order until one wins; skip the rest unseen.

    A failed or filtered record does not end the search: the next one is tried, even a duplicate of
    the one that failed.
    """
    rest = iter(records)
    for record in rest:
        verdict = (
            refused(record, matches) or _judged(record, handle) or (yield Failed(record, ASKED))
        )
        yield verdict
        if isinstance(verdict, Handled):
            yield from (pass_over or passed_over)(rest, record, identity)


def exact(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Result] | None,
    identity: Callable[[R], Identity],
    fingerprint: Callable[[R], Hashable] | None = None,
) -> Verdicts[R]:
    """
    Handle each identity once, in order; duplicates are skipped unhandled.

    With `fingerprint` (such as a hash of the value), records with equal fingerprints are
    duplicates instead.
    """
    fingerprint = fingerprint or identity
    reasons: dict[Hashable, str] = {}
    for record in records:
        mark = fingerprint(record)
        duplicate = reasons.get(mark)
        if duplicate is not None:
            yield Skipped(record, duplicate if may_pass(record, matches) else FILTERED)
            continue
        verdict = (
            refused(record, matches) or _judged(record, handle) or (yield Failed(record, ASKED))
        )
        # This holds for a failed record too, which comes back through the retry topic. If its
        # duplicates went there as well, each round would multiply them.
        if not (isinstance(verdict, Skipped) and verdict.reason == FILTERED):
            reasons[mark] = f"duplicate of {identity(record).id}"
        yield verdict


def latest(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Result] | None,
    identity: Callable[[R], Identity],
    pass_over: "PassOver[R] | None" = None,
) -> Verdicts[R]:
    """
    Handle the newest record that passes the filter; skip all older ones unseen.

    Newest means last in order. The search runs backwards, past records that fail the filter, whose
    filter raises, or that the handler skips. When it is over, the verdicts come in the order of
    the records. A failed handler does not bring an older record back: the newest has superseded
    it, and comes again through the retry topic.
    """
    older = list(records)
    newer: list[Verdict[R]] = []
    while older:
        record = older.pop()
        no = refused(record, matches)
        verdict = no or _judged(record, handle) or (yield Failed(record, ASKED))
        newer.append(verdict)
        if no is None and not isinstance(verdict, Skipped):
            yield from (pass_over or passed_over)(older, record, identity)
            break
    yield from reversed(newer)


def every(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Result] | None,
    identity: Callable[[R], Identity],  # noqa: ARG001  # a policy is called with it
) -> Verdicts[R]:
    """Handle every record that passes the filter, including duplicates."""
    for record in records:
        yield refused(record, matches) or _judged(record, handle) or (yield Failed(record, ASKED))


POLICIES: Mapping[str, AskingPolicy] = MappingProxyType(
    {"first_match": first_match, "exact": exact, "latest": latest}
)

OF_CONSUMERS: Mapping[str, AskingPolicy] = MappingProxyType({**POLICIES, "every": every})


async def awaited(
    policy: AskingPolicy,
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Awaitable[Result]],
    identity: Callable[[R], Identity],
) -> AsyncIterator[Verdict[R]]:
    """Yield the verdicts of `policy` for a handler that is awaited."""
    verdicts = policy(records, matches=matches, handle=None, identity=identity)
    verdict = next(verdicts, None)
    while verdict is not None:
        if isinstance(verdict, Failed) and verdict.result is ASKED:
            verdict = verdicts.send(await attempt_awaited(verdict.record, handle))
        else:
            yield verdict
            verdict = next(verdicts, None)


def by_key(records: Iterable[R], key: Callable[[R], K | None]) -> list[tuple[K | None, list[R]]]:
    """
    Group a batch by key, in order of first appearance; a key's records keep their order.

    Each record without a key is its own group.
    """
    groups: list[tuple[K | None, list[R]]] = []
    found: dict[K, list[R]] = {}
    for record in records:
        value = key(record)
        group = found.get(value) if value is not None else None
        if group is None:
            group = []
            groups.append((value, group))
            if value is not None:
                found[value] = group
        group.append(record)
    return groups


def _judged(record: R, handle: Callable[[R], Result] | None) -> Verdict[R] | None:
    return None if handle is None else attempt(record, handle)


def refused(record: R, matches: Callable[[R], bool]) -> Skipped[R] | Failed[R] | None:
    """Return why the record does not get to the handler; None if it does."""
    try:
        return None if matches(record) else Skipped(record, FILTERED)
    except Exception as error:  # noqa: BLE001  # whatever a filter raises is the record's verdict
        return Failed(record, failure(error))


def attempt(record: R, handle: Callable[[R], Result]) -> Verdict[R]:
    """Return the verdict on a record that passed the filter."""
    try:
        return verdict_of(record, handle(record))
    except Exception as error:  # noqa: BLE001  # whatever a handler raises is the record's verdict
        return Failed(record, failure(error))


async def attempt_awaited(record: R, handle: Callable[[R], Awaitable[Result]]) -> Verdict[R]:
    """As `attempt`, for a handler that is awaited."""
    try:
        return verdict_of(record, await handle(record))
    except Exception as error:  # noqa: BLE001  # whatever a handler raises is the record's verdict
        return Failed(record, failure(error))


def verdict_of(record: R, result: Result) -> Verdict[R]:
    """Return the verdict on a record whose handler answered `result`, or something else."""
    match result:
        case Done() | Again():
            return Handled(record, result)
        case Skip(reason):
            return Skipped(record, f"handler: {reason}")
        case Retry() | Dead():
            return Failed(record, result)
        case other:  # from a handler that nobody type-checked
            return Failed(record, no_result(other))


def passed_over(
    records: Iterable[R], winner: R, identity: Callable[[R], Identity]
) -> Iterator[Skipped[R]]:
    """Skip `records` in favour of `winner`; its identity is read only if there are any."""
    won: Identity | None = None
    duplicate = superseded = ""
    for record in records:
        if won is None:
            won = identity(winner)
            duplicate, superseded = f"duplicate of {won.id}", f"superseded by {won.id}"
        yield Skipped(record, duplicate if identity(record) == won else superseded)


def may_pass(record: R, matches: Callable[[R], bool]) -> bool:
    """Return whether the filter lets a duplicate pass, or raises, which changes nothing."""
    try:
        return matches(record)
    except Exception:  # noqa: BLE001  # the first one failed the same way, and says so
        return True
