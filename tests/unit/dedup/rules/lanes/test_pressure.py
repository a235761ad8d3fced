from dedup.rules.lanes.pressure import Limits, Pressure, valve


def test_a_level_that_hovers_about_the_limit_closes_once() -> None:
    records = valve(100)
    levels = [99, 100, 99, 101, 60, 51, 50, 99]
    assert [records.at(level) for level in levels] == [
        *(False, True, True, True),
        *(True, True, False, False),
    ]


def test_either_limit_closes_and_both_have_to_open() -> None:
    pressure = Pressure(Limits(records=10, bytes=1_000))
    assert not pressure.at(9, 999)
    assert pressure.at(9, 1_000)
    assert pressure.at(10, 100)
    assert not pressure.at(5, 100)
