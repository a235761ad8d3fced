"""Ask standbys for their copies of an outbox's replication slots, and change nothing."""

from collections.abc import Iterator, Sequence

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from outbox.errors import BadSettings, DovecoteError, first_line
from outbox.schema import capture as outbox_capture
from outbox.schema import slots
from outbox.secrets import mapped
from relay.postgres.connect import connect
from relay.rules.copies import SlotCopy, StandbyLook, of_standbys
from relay.rules.diagnosis import Finding
from relay.settings import RelaySettings

# The standby may not know how far it has received the log; then it retains 0 bytes.
_COPIES = """
SELECT s.slot_name::text, coalesce((to_jsonb(s) ->> 'synced')::bool, false), s.temporary,
       s.wal_status IS NOT DISTINCT FROM 'lost',
       coalesce(greatest(coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
                         - s.restart_lsn, 0), 0)::bigint
  FROM pg_replication_slots AS s
 WHERE s.slot_name = ANY (%s)
"""
_SERVER = (
    "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),"
    " (SELECT system_identifier::text FROM pg_control_system())"
)


def places(settings: RelaySettings, named: Sequence[str]) -> list[tuple[str, str]]:
    """
    Return host and port of the servers to look at: those of `dsn`, if it has several, and `named`.

    Raises:
        BadSettings: one of `named` is no `host` or `host:port`.
    """
    given = conninfo_to_dict(settings.dsn)
    hosts = str(given.get("host") or "").split(",")
    ports = str(given.get("port") or "").split(",")
    found: dict[tuple[str, str], None] = {}
    if len(hosts) > 1:
        each = ports * len(hosts) if len(ports) == 1 else ports
        found = dict.fromkeys(zip(hosts, each, strict=False))
    for one in named:
        host, _, port = one.rpartition(":") if ":" in one else (one, "", ports[0])
        if not host or (port and not port.isdecimal()):
            msg = f"--standby {one!r}: write HOST or HOST:PORT"
            raise BadSettings(msg)
        found[host, port] = None
    return list(found)


def look_at(settings: RelaySettings, there: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the findings about the copies of slots on these servers."""
    if not there:
        return
    try:
        with connect(settings.dsn, purpose="doctor") as conn:
            installed = outbox_capture.installed(conn, settings.schema_name)
            names = slots.existing(conn, installed.slot)
            row = conn.execute(_SERVER).fetchone()
    except (psycopg.Error, DovecoteError):
        return  # already reported for the outbox itself
    ours = str(row[2]) if row else ""
    yield from of_standbys([_asked(settings.dsn, place, names, ours) for place in there])


def _asked(dsn: str, place: tuple[str, str], names: Sequence[str], ours: str) -> StandbyLook:
    host, port = place
    where = f"{host}:{port}" if port else host

    def there(text: str) -> str:
        given = conninfo_to_dict(text).items()
        parts = {name: str(value) for name, value in given if name not in _ELSEWHERE}
        parts |= {"host": host} | ({"port": port} if port else {})
        return make_conninfo("", **parts)

    try:
        with connect(mapped(dsn, there), purpose="doctor") as conn:
            row = conn.execute(_SERVER).fetchone()
            found = conn.execute(_COPIES, [list(names)]).fetchall()
    except (psycopg.Error, DovecoteError) as error:
        return StandbyLook(where, first_line(error))
    version, is_standby, system = row or (0, False, "")
    copies = {name: SlotCopy(*(True, *rest)) for name, *rest in found}
    return StandbyLook(
        where,
        version=version,
        is_standby=is_standby,
        is_ours=system == ours,
        slots=[(name, copies.get(name, SlotCopy(present=False))) for name in names],
    )


_ELSEWHERE = frozenset({"host", "hostaddr", "port", "target_session_attrs"})
