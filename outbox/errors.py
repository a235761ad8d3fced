"""
What can go wrong when events are written, stored or read back.

DovecoteError                the base: one `except` catches all that is ours
├── InvalidEvent             the event could never be published; fix the caller
├── UnsupportedConnection    not a connection that can be written on, or not by this function
├── NoTransaction            nothing ties the event to the caller's rows; fix the caller
├── NotAccepted              neither Kafka nor the outbox has taken the event; send it again
├── ProducerClosed           events cannot be sent any more; make another producer
├── NoThreads                the threads here are greenlets; the message says what to do instead
├── NotAllowed               the role lacks a right; the message has the command that grants it
├── SharedSession            a pooler hands the session to others between two statements
├── SchemaMissing            the outbox is not installed here; run `dovecote init`
├── SchemaTooNew             the database was upgraded by a newer Dovecote; upgrade this one
└── BadSettings              a setting is missing, unknown or impossible; the message names it
"""


class DovecoteError(Exception):
    """The base of every error that Dovecote raises on purpose."""


class InvalidEvent(DovecoteError, ValueError):
    """The event could never be published; nothing was written."""


class UnsupportedConnection(DovecoteError, TypeError):
    """Events cannot be written on this object, or not by this function; nothing was written."""


class NoTransaction(DovecoteError):
    """The connection is in autocommit mode and no transaction is open; nothing was written."""


class NotAccepted(DovecoteError):
    """
    Neither Kafka nor the outbox has said that it has the event.

    Either may have it all the same: send this very event again, and its id tells copies apart.
    """


class ProducerClosed(DovecoteError):
    """The producer was closed, and takes no more events; this one was not sent."""


class NoThreads(DovecoteError):
    """A library has replaced this process's threads by greenlets, which Kafka's client blocks."""


class NotAllowed(DovecoteError):
    """The role lacks a right in Postgres; the message has the command that grants it."""


class SharedSession(DovecoteError):
    """Between two statements, other clients use the session: it can hold no lock for us."""


class SchemaMissing(DovecoteError):
    """The outbox is not installed in this database and schema."""


class SchemaTooNew(DovecoteError):
    """The installed schema is newer than this version of Dovecote knows."""


class BadSettings(DovecoteError, ValueError):
    """A setting is missing, unknown or impossible; the message names it."""


def first_line(error: BaseException) -> str:
    """Return the first line of the text of another's error, which names the fault."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
