"""An error of Postgres is one line, and says what to do."""

import re

import psycopg
import pytest

from dovecote.push.errors import Away, away
from dovecote.push.store.lease import at_once
from dovecote.push.store.tables import Tables

NOWHERE = "host=127.0.0.1 port=1 dbname=push"


def test_a_server_that_is_away_is_said_in_one_line_with_advice() -> None:
    tables = Tables(NOWHERE)
    with pytest.raises(Away) as raised, tables.begin():
        pass
    assert re.fullmatch(
        r"Postgres does not answer: .*Connection refused; is `dsn` right\?", str(raised.value)
    )
    with pytest.raises(Away) as leased, at_once(NOWHERE, "push", "it", "somebody does"):
        pass
    assert str(leased.value) == str(raised.value)


def test_a_server_that_ends_a_session_was_at_the_right_address() -> None:
    ended = psycopg.errors.AdminShutdown("terminating connection\n\tby somebody")
    assert str(away(ended)) == "Postgres does not answer: terminating connection"
