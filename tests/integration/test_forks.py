"""A forked process sends and consumes, and leaves its parent's clients to the parent."""

import importlib.util
import os
import subprocess
import sys

import psycopg
import pytest

from dedup.inbox import schema as inbox_schema
from dovecote.devstack import Stack
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import installed
from tests.support.waiting import consume, patient

HANGS_SECONDS = 300


def ran(
    what: str, *where: str, program: str = "forking", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tests.support.{program}", what, *where],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=patient(HANGS_SECONDS),
        check=False,
    )


def sent(stack: Stack, database: str, topic: str, what: str) -> list[str]:
    """Run a program that sends events; return the keys of those that came, sorted."""
    done = ran(what, installed(database), stack.kafka.bootstrap, topic)
    assert done.returncode == 0, done.stderr
    return keys(stack, topic)


def keys(stack: Stack, topic: str) -> list[str]:
    found = consume(stack.kafka.bootstrap, topic)
    return sorted((message.key() or b"").decode() for message in found)


def test_a_producer_begins_anew_in_a_child_which_sends_nothing_of_its_parents(
    stack: Stack, database: str, topic: MakeTopic
) -> None:
    found = sent(stack, database, topic(), "producer")

    of_the_parent = {"first", "last", *(f"parent-{number}" for number in range(200))}
    assert found == sorted(of_the_parent | {f"child-{number}" for number in range(20)})


@pytest.mark.parametrize(
    ("what", "came"), [("abandoned", ["first", "last"]), ("multiprocessed", ["child", "first"])]
)
def test_a_child_ends_and_its_parents_producer_goes_on(
    stack: Stack, database: str, topic: MakeTopic, what: str, came: list[str]
) -> None:
    assert sent(stack, database, topic(), what) == came


def test_a_consumer_that_was_made_before_a_fork_runs_in_the_child(
    stack: Stack, database: str, topic: MakeTopic
) -> None:
    assert sent(stack, database, topic(), "consumer") == ["first"]


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_threads_that_are_greenlets_are_refused_and_the_way_out_works(
    stack: Stack, database: str, topic: MakeTopic, library: str
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    where = (installed(database), stack.kafka.bootstrap, topic())

    refused = ran("green", *where, PATCH=f"{library} threads", PYTHONWARNINGS="ignore")
    assert f"NoThreads: {library} has made greenlets of the threads" in refused.stderr

    done = ran("green", *where, PATCH=f"{library} no", PYTHONWARNINGS="ignore")
    assert done.returncode == 0, done.stderr
    assert keys(stack, where[2]) == ["first"]


# The ways in which a child leaves the handler that forked it, and its status then.
LEFT = [("returns", 0), ("exits", 3), ("says", 1), ("raises", 1)]


@pytest.mark.parametrize(("how", "status"), LEFT)
@pytest.mark.parametrize("form", ["once", "together"])
def test_a_child_that_leaves_the_handler_that_forked_it_ends_no_transaction_of_its_parent(
    database: str, how: str, status: int, form: str
) -> None:
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (what text)")
    done = ran(how, form, database, program="forking_handlers")
    assert done.returncode == 0, done.stderr
    with psycopg.connect(database) as conn:
        effects = conn.execute("SELECT what FROM effects").fetchall()
        assert effects == [("before",), (f"child {status}",)]
        assert conn.execute("SELECT count(*) FROM inbox.handled").fetchone() == (1,)


@pytest.mark.parametrize(("how", "status"), LEFT)
@pytest.mark.parametrize("form", ["guarded", "of_records"])
def test_a_child_that_leaves_the_handler_that_forked_it_serves_no_record_of_its_parent(
    how: str, status: int, form: str
) -> None:
    done = ran(how, form, program="forking_handlers")
    assert (done.returncode, done.stdout) == (0, 2 * f"child {status}\n" + "goes on\n")
    assert ("ValueError: of the child" in done.stderr) == (how == "raises")
    assert done.stderr.count("enough\n") == (2 if how == "says" else 0)
