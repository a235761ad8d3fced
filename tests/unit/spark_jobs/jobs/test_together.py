"""Several queries run until one of them ends."""

import threading

import pytest

from spark_jobs.errors import QueryFailed
from spark_jobs.jobs.together import Run, run_all
from tests.support.waiting import patient


def test_all_end_when_they_are_asked_to() -> None:
    stop, ended = threading.Event(), list[str]()

    def waits(name: str) -> Run:
        def run(asked: threading.Event) -> None:
            stop.set()  # like a signal, once it runs
            assert asked.wait(patient(30))
            ended.append(name)

        return run

    run_all({"one": waits("one"), "other": waits("other")}, stop)

    assert sorted(ended) == ["one", "other"]


def test_one_that_fails_ends_the_others_and_is_told() -> None:
    ended = threading.Event()

    def fails(_: threading.Event) -> None:
        raise QueryFailed("broken")  # noqa: EM101  # as short as possible

    def waits(asked: threading.Event) -> None:
        assert asked.wait(patient(30))
        ended.set()

    with pytest.raises(QueryFailed, match="broken"):
        run_all({"one": fails, "other": waits}, threading.Event())

    assert ended.is_set()


def test_one_alone_runs_where_it_is_called() -> None:
    here = list[threading.Thread]()

    run_all({"one": lambda _: here.append(threading.current_thread())}, threading.Event())

    assert here == [threading.current_thread()]
