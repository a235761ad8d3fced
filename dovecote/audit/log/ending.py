"""End the audit of a log, so that the server need not keep it."""

import psycopg

from dovecote.audit.away import away
from dovecote.audit.log.slots import drop, log_of
from dovecote.audit.parts import Outbox
from outbox.postgres.session import connect


def end(outbox: Outbox) -> str | None:
    """
    Drop the auditor's slot of an outbox; return its name, None if there is none.

    Raises:
        Away: Postgres does not answer, the role may not, or an auditor reads the slot.
    """
    try:
        with connect(outbox.dsn, name="dovecote-audit") as conn:
            log = log_of(conn, outbox.schema)
            if log.slot is None:
                return None
            drop(conn, outbox.part, log.name)
            return log.name
    except psycopg.Error as error:
        raise away(outbox.part, error) from error
