"""A shard recognises its events by their bytes, in the way that others do by their keys."""

import pytest

from relay.decoding.own import Own
from relay.rules.sharding import divided, shard_of
from tests.unit.relay.decoding.messages import payload

ID = "0190d3f2-0000-7000-8000-0000000000%02d"
KEYS = [None, b"", b"\0", "Schlüssel".encode(), *[f"k{n}".encode() for n in range(40)]]


@pytest.mark.parametrize("subject", [None, b"", b"about"])
@pytest.mark.parametrize("headers", [(), (b"name", b"value")])
def test_each_message_is_that_of_the_shard_of_its_key(
    subject: bytes | None, headers: tuple[bytes, ...]
) -> None:
    owners = [Own(shard) for shard in divided("shop", 3)]
    for number, key in enumerate(KEYS * 2):
        id_ = ID % (number % 50)
        data = b"before" + payload(key=key, value=b"v", id_=id_, subject=subject, headers=headers)
        expected = shard_of(key, id_, 3)
        for shard, own in enumerate(owners):
            assert own.of_message(data, 6) == (shard == expected)
            assert own.of_event(key, id_.encode()) == (shard == expected)
            assert own.of_row(key, id_) == (shard == expected)


def test_keys_beyond_what_is_remembered_are_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.decoding.own._MOST_KEYS", 3)
    (own, _) = (Own(shard) for shard in divided("shop", 2))
    found = [own.of_message(payload(key=f"k{n}".encode()), 0) for n in range(50)]
    assert found == [shard_of(f"k{n}".encode(), "", 2) == 0 for n in range(50)]
