"""
Errors when events are written, stored or read back.

DovecoteError                the base: one `except` catches all of them
├── InvalidEvent             the event could never be published; fix the caller
├── UnsupportedConnection    not a connection for events, or not for this function
├── NoTransaction            nothing ties the event to the caller's rows; fix the caller
├── OpenTransaction          a transaction is open, in which nobody can wait; commit it first
├── NotAccepted              neither Kafka nor the outbox has taken the event; send it again
├── ProducerClosed           the producer sends no more events; make another one
├── NoThreads                the threads here are greenlets; the message says what to do instead
├── NotAllowed               the role lacks a right; the message has the command that grants it
├── NotFree                  another session has what was waited for; the message names it
├── SharedSession            a pooler hands the session to others between two statements
├── NoToken                  an identity provider has given no token for Kafka yet
├── NoClient                 a Kafka client cannot be made now; a certificate may be in renewal
├── SchemaMissing            the outbox is not installed here; run `dovecote init outbox`
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
    """
    No transaction is open, or a session has several that commit one by one; nothing was written.
    """


class OpenTransaction(DovecoteError):
    """A transaction is open on the connection, so what is waited for could never be seen."""


class NotAccepted(DovecoteError):
    """
    Neither Kafka nor the outbox has confirmed that it has the event.

    Either may have it all the same: send this very event again; consumers know duplicates by its
    id.
    """


class ProducerClosed(DovecoteError):
    """The producer is closed and takes no more events; this one was not sent."""


class NoThreads(DovecoteError):
    """
    A library has replaced this process's threads by greenlets, which Kafka's client would block.
    """


class NotFree(DovecoteError):
    """Another session holds what this one waited for; the message names it."""


class NotAllowed(DovecoteError):
    """The role lacks a right in Postgres; the message has the command that grants it."""


class SharedSession(DovecoteError):
    """Other clients use the session between two statements, so it can hold no lock for us."""


class NoToken(DovecoteError):
    """The provider of `[kafka.identity]` has given no token yet; the message says why."""


class NoClient(DovecoteError):
    """
    A Kafka client cannot be made now; the message says why.

    The process has as many as it can, or a certificate or key is not what the client takes.
    """


class SchemaMissing(DovecoteError):
    """The outbox is not installed in this database and schema."""


class SchemaTooNew(DovecoteError):
    """The installed schema is newer than this version of Dovecote supports."""


class BadSettings(DovecoteError, ValueError):
    """A setting is missing, unknown or impossible; the message names it."""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, which names the fault."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
