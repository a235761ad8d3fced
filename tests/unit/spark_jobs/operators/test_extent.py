from spark_jobs.operators import extent
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.settings import DelaySettings, SessionsSettings
from spark_jobs.operators.step import Input
from spark_jobs.operators.table import operator


def _input(key: str, time: int, offset: int) -> Input:
    return Input(key.encode(), time, 1, "t", 0, offset)


def test_open_sessions_are_counted_and_keys_with_none_are_known_all_the_same() -> None:
    sessions = operator(SessionsSettings(gap="5s", close_after="1s"))
    records = [_input("a", 0, 0), _input("b", 0, 1), _input("b", 4_000, 2)]

    state = sessions.step(sessions.start(), records, 0).state
    assert (extent.keys(state), extent.opened(state)) == (2, 2)

    state = sessions.step(state, [], 1_000).state
    assert (extent.keys(state), extent.opened(state)) == (2, 0)


def test_records_that_wait_are_open() -> None:
    delay = Delay(DelaySettings())

    state = delay.step(delay.start(), [_input("a", 5, 0), _input("a", 9, 1)], 6).state

    assert (extent.keys(state), extent.opened(state)) == (1, 1)
