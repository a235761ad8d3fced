"""A slot that a former primary kept as its own is found before the next failover."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovecote.devstack.postgres.pair import Pair
from outbox.errors import BadSettings
from outbox.schema.capture import installed as installed_capture
from outbox.schema.capture import use_wal
from relay.operating.standby_slots import look_at, places
from relay.settings import RelaySettings
from tests.support.relaying import installed
from tests.support.waiting import patient, until


def configured(dsn: str) -> RelaySettings:
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    given = conninfo_to_dict(dsn)
    password = given.pop("password", None)
    table = {**given, "password": {"env": "PASSWORD"}} if password else given
    return RelaySettings.model_validate(
        {"dsn": table, "kafka": kafka}, context={"environ": {"PASSWORD": password}}
    )


def make_slot(dsn: str, name: str) -> None:
    options = f"-c statement_timeout={patient(60):.0f}s"
    with psycopg.connect(dsn, autocommit=True, options=options) as conn:
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])


def test_a_slot_of_its_own_on_a_standby_is_a_finding_and_a_copy_is_none(pair: Pair) -> None:
    dsn = installed(pair.dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        slot = installed_capture(conn, "outbox").slot
        # A switchover leaves the same: a slot of this name that is no copy.
        with ThreadPoolExecutor(1) as threads:
            making = threads.submit(make_slot, pair.standby.dsn, slot)
            until(
                lambda: (
                    conn.execute("SELECT pg_log_standby_snapshot()").fetchone() and making.done()
                ),
                within=30,
                what="a slot on the standby, which waits for what the primary runs",
            )
            making.result()
    use_wal(dsn, "outbox")
    there = conninfo_to_dict(pair.standby.dsn)
    settings = configured(dsn)
    named = places(settings, [f"{there['host']}:{there['port']}"])

    def told() -> list[str]:
        return [str(each) for each in look_at(settings, named)]

    (line,) = told()
    assert line.startswith("fail  standby 127.0.0.1:")
    assert f"has a replication slot {slot} of its own" in line
    with psycopg.connect(pair.standby.dsn, autocommit=True) as behind:
        behind.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    # The server copies it for good once its reader has moved on.
    assert not told()[0].startswith("fail")


def test_hosts_of_dsn_are_looked_at_and_a_wrong_place_is_one_line(database: str) -> None:
    given = conninfo_to_dict(installed(database, "wal"))
    one, port = str(given["host"]), str(given["port"])
    several = make_conninfo(database, host=f"{one},{one}", port=f"1,{port}", connect_timeout=2)
    settings = configured(several)
    assert places(settings, ["elsewhere", "b:7"]) == [
        (one, "1"),
        (one, port),
        ("elsewhere", "1"),
        ("b", "7"),
    ]
    assert places(configured(database), []) == []
    (away,) = look_at(settings, places(settings, []))  # the other one is the primary
    assert f"warn  standby {one}:1 was not looked at: " in str(away)
    for wrong in (":5", "b:x", ""):
        with pytest.raises(BadSettings, match="write HOST or HOST:PORT"):
            places(settings, [wrong])
