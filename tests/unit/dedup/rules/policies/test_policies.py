"""Properties of the policies, compared with oracles that take the long way."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.identity import Identity
from dedup.rules.policies.policies import (
    OF_CONSUMERS,
    POLICIES,
    Failed,
    Handled,
    Policy,
    Skipped,
    Verdict,
    awaited,
    by_key,
    exact,
    first_match,
    latest,
)
from dedup.rules.policies.results import Again, Dead, Done, NonRetriable, Result, Retry, Skip

FILTERS = ("pass", "pass", "fail", "raise", "raise for good")
HANDLERS = ("done", "again", "skip", "retry", "dead", "raise", "raise for good")


class Row(NamedTuple):
    place: int
    id: str
    round: int
    filter: str
    handler: str


def rows() -> st.SearchStrategy[list[Row]]:
    parts = st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.sampled_from(FILTERS),
        st.sampled_from(HANDLERS),
    )
    return st.lists(parts, max_size=12).map(
        lambda found: [Row(place, *part) for place, part in enumerate(found)]
    )


class Calls:
    """The three functions of a policy, and the rows for which they were called."""

    def __init__(self) -> None:
        self.matched: list[int] = []
        self.handled: list[int] = []
        self.identified: list[int] = []

    def matches(self, row: Row) -> bool:
        self.matched.append(row.place)
        raise_for(row.filter)
        return row.filter == "pass"

    def handle(self, row: Row) -> Result:
        self.handled.append(row.place)
        raise_for(row.handler)
        results: dict[str, Result] = {
            "done": Done(),
            "again": Again(timedelta(seconds=1)),
            "skip": Skip("not mine"),
            "retry": Retry("later"),
            "dead": Dead("never"),
        }
        return results[row.handler]

    def identity(self, row: Row) -> Identity:
        self.identified.append(row.place)
        return Identity("/s", row.id, row.round)


def raise_for(what: str) -> None:
    if what == "raise":
        raise LookupError(what)
    if what == "raise for good":
        raise NonRetriable(what)


def decide(policy: Policy, batch: Sequence[Row], calls: Calls | None = None) -> list[Verdict[Row]]:
    calls = calls or Calls()
    return list(policy(batch, matches=calls.matches, handle=calls.handle, identity=calls.identity))


def told(verdicts: Sequence[Verdict[Row]]) -> list[tuple[int, str]]:
    """Return each verdict in the words of the oracles."""
    words = []
    for verdict in verdicts:
        match verdict:
            case Handled(row, _):
                words.append((row.place, "handled"))
            case Skipped(row, reason):
                words.append((row.place, reason))
            case Failed(row, Retry()):
                words.append((row.place, "to retry"))
            case Failed(row, Dead()):
                words.append((row.place, "to dead letters"))
    return words


def alone(row: Row) -> str:
    """Return the result of a row that is the only one of its key."""
    if row.filter == "fail":
        return "filtered"
    if row.filter.startswith("raise"):
        return "to retry" if row.filter == "raise" else "to dead letters"
    return {
        "done": "handled",
        "again": "handled",
        "skip": "handler: not mine",
        "retry": "to retry",
        "raise": "to retry",
        "dead": "to dead letters",
        "raise for good": "to dead letters",
    }[row.handler]


def for_the_sake_of(winner: Row, row: Row) -> str:
    same = (winner.id, winner.round) == (row.id, row.round)
    return f"{'duplicate of' if same else 'superseded by'} {winner.id}"


def first_match_by_hand(batch: Sequence[Row]) -> list[tuple[int, str]]:
    winners = [row for row in batch if alone(row) == "handled"]
    if not winners:
        return [(row.place, alone(row)) for row in batch]
    winner = winners[0]
    return [
        (row.place, alone(row) if row.place <= winner.place else for_the_sake_of(winner, row))
        for row in batch
    ]


def exact_by_hand(batch: Sequence[Row]) -> list[tuple[int, str]]:
    words = []
    for row in batch:
        copies_before = [
            other
            for other in batch[: row.place]
            if (other.id, other.round) == (row.id, row.round) and alone(other) != "filtered"
        ]
        filtered_or_first = row.filter == "fail" or not copies_before
        words.append((row.place, alone(row) if filtered_or_first else f"duplicate of {row.id}"))
    return words


def latest_by_hand(batch: Sequence[Row]) -> list[tuple[int, str]]:
    chosen = [row for row in batch if row.filter == "pass" and row.handler != "skip"]
    if not chosen:
        return [(row.place, alone(row)) for row in batch]
    newest = chosen[-1]
    return [
        (row.place, alone(row) if row.place >= newest.place else for_the_sake_of(newest, row))
        for row in batch
    ]


ORACLES: dict[str, Callable[[Sequence[Row]], list[tuple[int, str]]]] = {
    "first_match": first_match_by_hand,
    "exact": exact_by_hand,
    "latest": latest_by_hand,
}

every_policy = pytest.mark.parametrize("name", POLICIES)


@every_policy
@given(batch=rows())
def test_a_policy_decides_as_the_oracle_does(name: str, batch: list[Row]) -> None:
    assert told(decide(POLICIES[name], batch)) == ORACLES[name](batch)


@every_policy
@given(batch=rows())
def test_every_record_gets_one_verdict_in_the_order_of_the_records(
    name: str, batch: list[Row]
) -> None:
    assert [verdict.record for verdict in decide(POLICIES[name], batch)] == batch


@every_policy
@given(batch=rows())
def test_the_same_records_get_the_same_verdicts(name: str, batch: list[Row]) -> None:
    assert decide(POLICIES[name], batch) == decide(POLICIES[name], batch)


@every_policy
@given(batch=rows())
def test_no_record_is_handled_twice(name: str, batch: list[Row]) -> None:
    calls = Calls()
    decide(POLICIES[name], batch, calls)
    assert len(set(calls.handled)) == len(calls.handled)
    assert all(batch[place].filter == "pass" for place in calls.handled)


@pytest.mark.parametrize("policy", [first_match, latest])
@given(batch=rows())
def test_at_most_one_record_of_a_key_is_handled(policy: Policy, batch: list[Row]) -> None:
    assert sum(isinstance(verdict, Handled) for verdict in decide(policy, batch)) <= 1


@given(batch=rows())
def test_exact_calls_the_handler_once_per_identity(batch: list[Row]) -> None:
    calls = Calls()
    decide(exact, batch, calls)
    tried = Counter((batch[place].id, batch[place].round) for place in calls.handled)
    assert all(times == 1 for times in tried.values())


@given(batch=rows())
def test_first_match_asks_nothing_of_a_record_after_the_winner_but_who_it_is(
    batch: list[Row],
) -> None:
    calls = Calls()
    verdicts = decide(first_match, batch, calls)
    won = [verdict.record.place for verdict in verdicts if isinstance(verdict, Handled)]
    tried = list(range(won[0] + 1)) if won else list(range(len(batch)))
    rest = list(range(len(tried), len(batch)))

    assert calls.matched == tried
    assert sorted(calls.identified) == ([*won, *rest] if rest else [])


@given(batch=rows())
def test_first_match_without_copies_to_tell_apart_reads_no_identity(batch: list[Row]) -> None:
    calls = Calls()
    verdicts = decide(first_match, [row for row in batch if alone(row) != "handled"], calls)
    assert not calls.identified
    assert not any(isinstance(verdict, Handled) for verdict in verdicts)


@given(batch=rows())
def test_latest_asks_nothing_of_a_record_older_than_the_newest_that_passes(
    batch: list[Row],
) -> None:
    calls = Calls()
    decide(latest, batch, calls)
    chosen = [row.place for row in batch if row.filter == "pass" and row.handler != "skip"]
    assert calls.matched == list(range(len(batch)))[chosen[-1] if chosen else 0 :][::-1]


def test_verdicts_come_as_they_are_asked_for() -> None:
    calls = Calls()
    batch = [Row(0, "a", 0, "pass", "raise"), Row(1, "b", 0, "pass", "done")]
    verdicts = first_match(
        batch, matches=calls.matches, handle=calls.handle, identity=calls.identity
    )
    next(verdicts)
    assert calls.handled == [0]


def test_copies_by_fingerprint_name_the_first_record_that_had_it() -> None:
    calls = Calls()
    batch = [Row(0, "a", 0, "pass", "done"), Row(1, "b", 0, "pass", "done")]
    verdicts = exact(
        batch,
        matches=calls.matches,
        handle=calls.handle,
        identity=calls.identity,
        fingerprint=lambda row: row.handler,
    )
    assert told(list(verdicts)) == [(0, "handled"), (1, "duplicate of a")]


@pytest.mark.parametrize("returned", [None, True, {"status": "ok"}])
@every_policy
def test_a_handler_that_returns_no_result_has_failed(name: str, returned: object) -> None:
    (verdict,) = POLICIES[name](
        ["record"],
        matches=lambda _: True,
        handle=lambda _: returned,  # type: ignore[arg-type, return-value]  # the mistake in question
        identity=lambda record: Identity("/s", record),
    )
    assert isinstance(verdict, Failed)
    assert "not Done, Again, Skip, Retry or Dead" in verdict.result.error


@every_policy
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_policy_does_not_outlive_the_wish_to_stop(name: str, stop: type[BaseException]) -> None:
    def handle(_: str) -> Result:
        raise stop

    with pytest.raises(stop):
        list(
            POLICIES[name](
                ["record"],
                matches=lambda _: True,
                handle=handle,
                identity=lambda r: Identity("/s", r),
            )
        )


keyed = st.lists(st.tuples(st.sampled_from(["k", "l", "", None]), st.integers()), max_size=12)


@given(keyed)
def test_a_batch_is_grouped_by_key_in_order_and_nothing_shares_a_null_key(
    batch: list[tuple[str | None, int]],
) -> None:
    groups = by_key(batch, lambda record: record[0])

    assert Counter(record for _, group in groups for record in group) == Counter(batch)
    for key, group in groups:
        assert group == ([r for r in batch if r[0] == key] if key is not None else group)
        assert len(group) == 1 or key is not None
        assert all(record[0] == key for record in group)
    firsts = [batch.index(group[0]) for key, group in groups if key is not None]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize("name", OF_CONSUMERS)
@given(rows())
def test_a_policy_comes_to_the_same_verdicts_for_a_handler_that_is_awaited(
    name: str, batch: list[Row]
) -> None:
    policy, plain, calls = OF_CONSUMERS[name], Calls(), Calls()

    async def handle(row: Row) -> Result:
        await asyncio.sleep(0)
        return calls.handle(row)

    async def collect() -> list[Verdict[Row]]:
        verdicts = awaited(
            policy, batch, matches=calls.matches, handle=handle, identity=calls.identity
        )
        return [verdict async for verdict in verdicts]

    assert asyncio.run(collect()) == decide(policy, batch, plain)
    assert vars(calls) == vars(plain)
