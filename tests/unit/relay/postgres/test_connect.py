"""Errors that waiting does not resolve are distinguished from those that it may."""

import psycopg
import pytest

from relay.postgres.connect import shut_out

AT = 'connection to server at "10.0.0.1", port 5432 failed: '


@pytest.mark.parametrize(
    "why",
    [
        'FATAL:  password authentication failed for user "relay"',
        "fe_sendauth: no password supplied",
        'FATAL:  database "shop" does not exist',
        'FATAL:  role "relay" does not exist',
        'FATAL:  role "relay" is not permitted to log in',
        'FATAL:  permission denied for database "shop"',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "relay", database "shop"',
        "SSL error: certificate verify failed",
        'server certificate for "db" does not match host name "10.0.0.1"',
        "server does not support SSL, but SSL was required",
    ],
)
def test_a_server_that_lets_us_in_on_no_account_is_refused(why: str) -> None:
    refused = shut_out(psycopg.OperationalError(AT + why))
    assert refused is not None
    assert why.removeprefix("FATAL:  ") in str(refused)
    assert "correct `dsn` and its secrets" in str(refused)


@pytest.mark.parametrize(
    "why",
    [
        "Connection refused",
        "FATAL:  the database system is starting up",
        "FATAL:  sorry, too many clients already",
        "timeout expired",
        "SSL connection has been closed unexpectedly",
        "could not translate host name",
    ],
)
def test_a_server_that_is_away_is_waited_for(why: str) -> None:
    assert shut_out(psycopg.OperationalError(AT + why)) is None


def test_of_several_hosts_all_must_have_said_so() -> None:
    wrong, away = AT + "FATAL:  password authentication failed", AT + "Connection refused"
    head = "connection failed: x\nMultiple connection attempts failed. All failures were:\n"
    assert shut_out(psycopg.OperationalError(f"{head}- host: 'a': {wrong}\n- host: 'b': {wrong}"))
    one = psycopg.OperationalError(f"{head}- host: 'a': {wrong}\n- host: 'b': {away}")
    assert shut_out(one) is None
