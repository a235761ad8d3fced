"""An import loads what its user needs, and no client of a server that is asked nothing."""

import subprocess
import sys

import pytest

_CLIENTS = ("asyncpg", "confluent_kafka", "django", "psycopg", "pydantic", "sqlalchemy")


def loaded(code: str) -> set[str]:
    """Return the clients that a new process has loaded after `code`."""
    told = f"{code}; import sys; print('loaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", told], stdout=subprocess.PIPE, text=True, check=True
    )
    modules = done.stdout.rpartition("loaded ")[2].split()
    return {each for each in _CLIENTS if each in modules}


@pytest.mark.parametrize(
    "code",
    [
        "import outbox",
        "from outbox import Event, event, write, write_async",
        "import dedup",
        "import dovecote.cli.tree",
        "from dovecote.cli.tree import app; app(['--help'], standalone_mode=False)",
        "import dovecote.testing.plugin",
    ],
)
def test_no_client_is_loaded_before_it_is_needed(code: str) -> None:
    assert loaded(code) == set()


@pytest.mark.parametrize(
    "code",
    [
        "import dovecote.process.settings.loading",
        "import spark_jobs.policy.evaluation",
    ],
)
def test_settings_load_no_client(code: str) -> None:
    assert loaded(code) == {"pydantic"}


def test_a_consumer_without_an_inbox_loads_no_driver() -> None:
    assert loaded("from dedup import Consumer, ConsumerSettings") == {
        "confluent_kafka",
        "pydantic",
    }


def test_the_first_event_that_is_written_loads_its_own_driver() -> None:
    code = (
        "from outbox import Event, write\n"
        "from outbox.testing import recorded\n"
        "with recorded() as conn:\n"
        "    write(conn, Event(topic='t', key='k', type='T', value={}))\n"
        "    assert [each.key for each in conn.events] == ['k']\n"
        "pass"
    )
    assert "sqlalchemy" not in loaded(code)
