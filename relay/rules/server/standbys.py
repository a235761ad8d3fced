"""Check the server's synchronous standbys for a relay that follows its log."""

import re

from relay.rules.server.slot import Fault

APPLICATION = "dovecote relay (wal)"
"""The name under which the server knows a relay's stream."""

_NUMBERED = re.compile(r"(?:(?:first|any)\s+)?[0-9]+\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^\s,"()]+)')


def fault(names: str) -> Fault | None:
    """
    Return why the log cannot be read if `synchronous_standby_names` is `names`, or None.

    A relay confirms what Kafka has. If it counted as a standby, every commit of the server would
    wait for Kafka, or would end without the standby that it was meant to wait for.
    """
    if not _names_us(names):
        return None
    return Fault(
        f"synchronous_standby_names is {names!r}, by which the relay itself is a synchronous "
        "standby: commits wait until Kafka has what it reads, and no longer for a real standby",
        "name the real standbys there; or read the table, `dovecote init outbox --capture table`",
    )


def _names_us(names: str) -> bool:
    """Return whether the server would count our stream as a synchronous standby."""
    given = names.strip()
    numbered = _NUMBERED.fullmatch(given)
    found = _NAME.finditer(numbered[1] if numbered else given)
    members = (each[2] or each[1].replace('""', '"') for each in found)
    return any(each == "*" or each.lower() == APPLICATION for each in members)
