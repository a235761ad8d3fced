"""The shard of an event never changes; and the names of shards."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules.sharding import Shard, divided, shard_of

ID = "0190a0b0-0000-7000-8000-000000000000"


# Another answer in another version would give a key to a relay that knows nothing of it.
@pytest.mark.parametrize(
    ("key", "shards"),
    [
        (b"", {2: 0, 3: 2, 7: 1, 64: 2}),
        (b"k0", {2: 0, 3: 1, 7: 2, 64: 26}),
        (b"order-42", {2: 1, 3: 1, 7: 6, 64: 23}),
        ("Schlüssel".encode(), {2: 0, 3: 0, 7: 1, 64: 0}),
        (b"\x00\xff", {2: 0, 3: 1, 7: 4, 64: 42}),
        (None, {2: 0, 3: 1, 7: 2, 64: 28}),
    ],
)
def test_the_shard_of_a_key_is_the_same_in_every_version(
    key: bytes | None, shards: dict[int, int]
) -> None:
    assert {of: shard_of(key, ID, of) for of in shards} == shards


@given(st.none() | st.binary(), st.uuids().map(str), st.integers(1, 64))
def test_every_event_has_one_of_the_shards(key: bytes | None, id_: str, shards: int) -> None:
    assert 0 <= shard_of(key, id_, shards) < shards


@given(st.binary(), st.uuids().map(str), st.uuids().map(str), st.integers(1, 64))
def test_the_events_of_a_key_are_in_one_shard(key: bytes, one: str, two: str, shards: int) -> None:
    assert shard_of(key, one, shards) == shard_of(key, two, shards)


def test_keys_are_shared_out_evenly() -> None:
    counts = Counter(shard_of(f"order-{n}".encode(), ID, 7) for n in range(70_000))
    assert len(counts) == 7
    assert all(9_500 < count < 10_500 for count in counts.values())


def test_an_outbox_in_one_piece_keeps_its_name() -> None:
    assert [shard.name for shard in divided("shop", 1)] == ["shop"]
    assert str(Shard("shop")) == "outbox 'shop'"


def test_shards_have_names_of_their_own() -> None:
    assert [shard.name for shard in divided("shop", 3)] == [
        f"shop.shard-{number}" for number in range(3)
    ]
    assert str(Shard("shop", 2, 3)) == "outbox 'shop', shard 2 of 3"
