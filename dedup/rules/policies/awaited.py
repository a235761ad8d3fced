"""
The policies of `dedup.rules.policies.policies` for handlers that are awaited.

They give the same verdicts in the same order, as a test checks. A separate module is needed
because a generator cannot await on behalf of the functions that it calls.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from dedup.rules.policies.policies import (
    FILTERED,
    Failed,
    Handled,
    Identity,
    R,
    Skipped,
    Verdict,
    may_pass,
    passed_over,
    refused,
    verdict_of,
)
from dedup.rules.policies.results import Result, failure


class AwaitedPolicy(Protocol):
    """As `dedup.rules.policies.policies.Policy`."""

    def __call__(
        self,
        records: Iterable[R],
        *,
        matches: Callable[[R], bool],
        handle: Callable[[R], Awaitable[Result]],
        identity: Callable[[R], Identity],
    ) -> AsyncIterator[Verdict[R]]: ...


async def every(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Awaitable[Result]],
    identity: Callable[[R], Identity],  # noqa: ARG001  # a policy is called with it
) -> AsyncIterator[Verdict[R]]:
    """As `dedup.rules.policies.policies.every`."""
    for record in records:
        yield refused(record, matches) or await attempt(record, handle)


async def first_match(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Awaitable[Result]],
    identity: Callable[[R], Identity],
) -> AsyncIterator[Verdict[R]]:
    """As `dedup.rules.policies.policies.first_match`."""
    rest = iter(records)
    for record in rest:
        verdict = refused(record, matches) or await attempt(record, handle)
        yield verdict
        if isinstance(verdict, Handled):
            for skipped in passed_over(rest, record, identity):
                yield skipped


async def exact(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Awaitable[Result]],
    identity: Callable[[R], Identity],
    fingerprint: Callable[[R], Hashable] | None = None,
) -> AsyncIterator[Verdict[R]]:
    """As `dedup.rules.policies.policies.exact`."""
    fingerprint = fingerprint or identity
    reasons: dict[Hashable, str] = {}
    for record in records:
        mark = fingerprint(record)
        duplicate = reasons.get(mark)
        if duplicate is not None:
            yield Skipped(record, duplicate if may_pass(record, matches) else FILTERED)
            continue
        verdict = refused(record, matches) or await attempt(record, handle)
        if not (isinstance(verdict, Skipped) and verdict.reason == FILTERED):
            reasons[mark] = f"duplicate of {identity(record)[0]}"
        yield verdict


async def latest(
    records: Iterable[R],
    *,
    matches: Callable[[R], bool],
    handle: Callable[[R], Awaitable[Result]],
    identity: Callable[[R], Identity],
) -> AsyncIterator[Verdict[R]]:
    """As `dedup.rules.policies.policies.latest`."""
    older = list(records)
    newer: list[Verdict[R]] = []
    while older:
        record = older.pop()
        no = refused(record, matches)
        verdict = no or await attempt(record, handle)
        newer.append(verdict)
        if no is None and not isinstance(verdict, Skipped):
            for skipped in passed_over(older, record, identity):
                yield skipped
            break
    for verdict in reversed(newer):
        yield verdict


async def attempt(record: R, handle: Callable[[R], Awaitable[Result]]) -> Verdict[R]:
    """As `dedup.rules.policies.policies.attempt`."""
    try:
        return verdict_of(record, await handle(record))
    except Exception as error:  # noqa: BLE001  # whatever a handler raises is the record's verdict
        return Failed(record, failure(error))


AWAITED: Mapping[str, AwaitedPolicy] = MappingProxyType(
    {"first_match": first_match, "exact": exact, "latest": latest, "every": every}
)
