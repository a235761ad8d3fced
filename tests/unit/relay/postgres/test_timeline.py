"""A history file shows where a server left each timeline before its own."""

from relay.postgres.timeline import left_at

HISTORY = "1\t0/30001C8\tno recovery target specified\n\n2\t1/5000000\tbefore 2026\n"


def test_each_timeline_ends_where_the_next_one_began() -> None:
    assert left_at(HISTORY, 1) == 0x30001C8
    assert left_at(HISTORY, 2) == 0x1_0500_0000


def test_a_timeline_that_it_never_was_on_shares_nothing() -> None:
    assert left_at(HISTORY, 3) == 0
    assert left_at("", 1) == 0
    assert left_at("# of a comment\n12\t0/7\t1\t0/9\n", 1) == 0
