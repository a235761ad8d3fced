"""Writers that call the SQL function are refused what no record can carry."""

from datetime import UTC, datetime, timedelta

import pytest
from psycopg import errors

from tests.support.written import Conn, stored


def many(**arguments: str) -> str:
    """Return a call of the array form for two events, with some of its arguments replaced."""
    call = {
        "topics": "'{t,t}'",
        "keys": "'{k,k}'",
        "values": "'{a,b}'",
        "types": "'{T,T}'",
        "ids": "ARRAY[gen_random_uuid(), gen_random_uuid()]",
        "sources": "'{s,s}'",
        "subjects": "'{NULL,NULL}'",
        "times": "ARRAY[now(), now()]",
        "content_types": "'{NULL,NULL}'",
        "header_counts": "NULL",
        "header_names": arguments.pop("names", "NULL"),
        "header_values": arguments.pop("header_values", "NULL"),
        **arguments,
    }
    return "append_many(" + ", ".join(call.values()) + ")"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("append('two words', NULL, NULL, 'T')", "'two words' is not a Kafka topic name"),
        ("append(E'orders\\n', NULL, NULL, 'T')", "is not a Kafka topic name"),
        ("append(repeat('x', 250), NULL, NULL, 'T')", "is not a Kafka topic name"),
        ("append(NULL, NULL, NULL, 'T')", "NULL is not a Kafka topic name"),
        ("append('__x', NULL, NULL, 'T')", "Kafka's or Dovecote's own"),
        ("append('dovecote.progress.shop', NULL, NULL, 'T')", "Kafka's or Dovecote's own"),
        ("append('t', NULL, NULL, '')", "a type and a source"),
        ("append('t', NULL, NULL, NULL)", "a type and a source"),
        ("append('t', NULL, NULL, 'T', source => '')", "a type and a source"),
        ("append('t', NULL, NULL, 'T', \"time\" => 'infinity')", "years 1 to 9999"),
        ("append('t', NULL, NULL, 'T', \"time\" => '0044-03-15 BC')", "years 1 to 9999"),
        ("append('t', NULL, NULL, 'T', \"time\" => NULL)", "years 1 to 9999"),
        ("append('t', NULL, NULL, 'T', header_names => '{a}')", "two lists of one length"),
        ("append('t', NULL, NULL, 'T', header_values => '{a}')", "two lists of one length"),
        (
            "append('t', NULL, NULL, 'T', header_names => '{{a,b}}', header_values => '{{x,y}}')",
            "two lists of one length",
        ),
        (
            "append('t', NULL, NULL, 'T', header_names => '{NULL}', header_values => '{x}')",
            "a header needs a name",
        ),
        (
            "append('t', NULL, NULL, 'T', header_names => '{ce_id}', header_values => '{x}')",
            "belongs to the envelope",
        ),
        (
            (
                "append('t', NULL, NULL, 'T', header_names => '{Dovecote_round}',"
                " header_values => '{1}')"
            ),
            "is Dovecote's own",
        ),
        (
            (
                "append('t', NULL, NULL, 'T', header_names => array_fill('a'::text, '{1001}'),"
                " header_values => array_fill(''::bytea, '{1001}'))"
            ),
            "1001 headers, and at most 1000",
        ),
        (
            many(header_counts="'{0,1}'", names="'{dovecote_attempt}'", header_values="'{1}'"),
            "is Dovecote's own",
        ),
        (
            many(
                header_counts="'{1,1001}'",
                names="array_fill('a'::text, '{1002}')",
                header_values="array_fill(''::bytea, '{1002}')",
            ),
            "1001 headers, and at most 1000",
        ),
        (many(keys="'{k}'"), "different lengths"),
        (many(subjects="NULL"), "different lengths"),
        (many(header_counts="'{1}'"), "different lengths"),
        (many(header_counts="'{2,1}'", names="'{a,b}'", header_values="'{x,y}'"), "do not add up"),
        (
            many(header_counts="'{1,1}'", names="'{a,b}'", header_values="'{x}'"),
            "two lists of one",
        ),
        (
            many(header_counts="'{3,-1}'", names="'{a,b}'", header_values="'{x,y}'"),
            "do not add up",
        ),
        (many(header_counts="'{1,0}'"), "do not add up"),
        (
            many(header_counts="'{1,NULL}'", names="'{a}'", header_values="'{x}'"),
            "do not add up",
        ),
        (many(names="'{a}'", header_values="'{x}'"), "do not add up"),
        (
            many(header_counts="'{1,1}'", names="'[0:1]={a,b}'", header_values="'{x,y}'"),
            "first element at 1",
        ),
        (
            many(header_counts="'{1,1}'", names="'{a,b}'", header_values="'[2:3]={x,y}'"),
            "first element at 1",
        ),
        (many(topics="'{t,__x}'"), "Kafka's or Dovecote's own"),
        (many(topics="'{t,NULL}'"), "NULL is not a Kafka topic name"),
        (many(types="'{T,NULL}'"), "a type and a source"),
        (many(times="ARRAY[now(), 'infinity']"), "years 1 to 9999"),
        (many(times="ARRAY[now(), '0044-03-15 BC']"), "years 1 to 9999"),
        (many(times="ARRAY[now(), NULL]"), "years 1 to 9999"),
    ],
)
def test_sql_writers_are_refused_what_no_record_can_carry(
    conn: Conn, call: str, says: str
) -> None:
    with pytest.raises(errors.DatabaseError, match=says):
        conn.execute(f"SELECT outbox.{call}".encode())


@pytest.mark.parametrize(
    "arguments",
    [
        "'_orders', NULL, NULL, 'T'",
        "'...', NULL, NULL, 'T'",
        "repeat('x', 249), NULL, NULL, 'T'",
        "'dovecote.orders', NULL, NULL, 'T'",
        "'t', NULL, NULL, 'T', \"time\" => '0001-01-01 00:00:00+00'",
        "'t', NULL, NULL, 'T', \"time\" => '9999-12-31 23:59:59+00'",
        "'t', NULL, NULL, 'T', header_names => '{a}', header_values => '{NULL}'",
    ],
)
def test_sql_writers_may_write_what_is_unusual(conn: Conn, arguments: str) -> None:
    conn.execute(f"SELECT outbox.append({arguments})".encode())
    assert conn.execute("SELECT count(*) FROM outbox.events").fetchone() == (1,)


def test_sql_writers_need_name_only_what_they_have(conn: Conn, dsn: str) -> None:
    conn.execute("SELECT outbox.append('orders', 'k', 'v', 'OrderPlaced')")
    conn.commit()
    ((key, value, source, time, names),) = stored(dsn, "key, value, source, time, header_names")
    assert (key, value, source, names) == (b"k", b"v", "dovecote", None)
    assert abs(datetime.now(UTC) - time) < timedelta(minutes=1)
