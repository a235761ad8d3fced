import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.policies import policies
from dedup.rules.policies.awaited import AWAITED
from dedup.rules.policies.policies import Identity, Verdict
from dedup.rules.policies.results import Dead, Done, Result, Retry, Skip

PLAIN = {**policies.POLICIES, "every": policies.every}
RESULTS: list[Result] = [Done(), Skip("no"), Retry("later"), Dead("never")]


class Copy(NamedTuple):
    number: int
    id: str
    passes: bool | None
    result: Result | None


COPIES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([True, True, False, None]),
        st.sampled_from([*RESULTS, None]),
    ),
    max_size=12,
).map(lambda drawn: [Copy(n, *each) for n, each in enumerate(drawn)])


def matches(copy: Copy) -> bool:
    if copy.passes is None:
        raise ValueError
    return copy.passes


def identity(copy: Copy) -> Identity:
    return copy.id, 0


def handle(copy: Copy) -> Result:
    if copy.result is None:
        raise KeyError(copy.number)
    return copy.result


@pytest.mark.parametrize("name", sorted(AWAITED))
@given(COPIES)
def test_an_awaited_policy_comes_to_the_verdicts_of_the_other(
    name: str, copies: list[Copy]
) -> None:
    handled: dict[str, list[Copy]] = {"plain": [], "awaited": []}

    def plainly(copy: Copy) -> Result:
        handled["plain"].append(copy)
        return handle(copy)

    async def awaited(copy: Copy) -> Result:
        handled["awaited"].append(copy)
        await asyncio.sleep(0)
        return handle(copy)

    async def collect(records: Iterable[Copy]) -> list[Verdict[Copy]]:
        verdicts = AWAITED[name](records, matches=matches, handle=awaited, identity=identity)
        return [verdict async for verdict in verdicts]

    expected = list(PLAIN[name](copies, matches=matches, handle=plainly, identity=identity))
    assert asyncio.run(collect(copies)) == expected
    assert handled["awaited"] == handled["plain"]
