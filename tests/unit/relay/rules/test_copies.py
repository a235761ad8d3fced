"""`doctor` judges the copies of slots that standbys have."""

import pytest

from relay.rules.copies import SlotCopy, StandbyLook, of_standbys

SOUND = SlotCopy(present=True, synced=True)


def told(*slots: tuple[str, SlotCopy], version: int = 180_000, **more: object) -> list[str]:
    look = StandbyLook("b:5432", version=version, is_standby=True, slots=slots)
    changed = StandbyLook(**{**{n: getattr(look, n) for n in look.__slots__}, **more})
    return [str(each) for each in of_standbys([changed])]


@pytest.mark.parametrize(
    ("copy", "says"),
    [
        (SOUND, "ok    standby b:5432 has a copy of replication slot s"),
        (SlotCopy(present=False), "warn  standby b:5432 has no copy of replication slot s"),
        (
            SlotCopy(present=True, retained=12_345),
            "fail  .*nothing moves it, it holds back 12,345 bytes",
        ),
        (SlotCopy(present=True, synced=True, lost=True), "warn  .*invalidated"),
        (SlotCopy(present=True, synced=True, temporary=True), "warn  .*not yet finished"),
    ],
)
def test_each_copy_is_judged(copy: SlotCopy, says: str) -> None:
    (line,) = told(("s", copy))
    assert line.startswith(says) or says.partition(".*")[2] in line
    assert line[:4] == says[:4]


def test_an_orphan_is_dropped_where_it_is() -> None:
    (line,) = told(("s", SlotCopy(present=True)))
    assert "on that standby: SELECT pg_drop_replication_slot('s')" in line


def test_older_servers_primaries_and_others_have_no_copies() -> None:
    assert told(("s", SlotCopy(present=False)), version=160_000) == []
    assert told(("s", SlotCopy(present=True)), is_standby=False) == []
    (other,) = told(("s", SOUND), is_ours=False)
    assert "is a server with other data" in other
    (away,) = told(error="no route")
    assert away.startswith("warn  standby b:5432 was not looked at: no route")
