"""
Errors of the embedded servers.

DovecoteError
└── StackError               a server of the embedded stack is not as asked for
    ├── JavaMissing          no Java >= 17 was found; the message says where it was looked for
    ├── JarsMissing          jars could not be fetched; the message says what to do offline
    │   └── JarsDiffer       what was fetched has other checksums than those that are kept
    ├── ServerFailed         a server did not start or stop; the message quotes its log
    ├── ServerNotRunning     a server was to be paused or resumed, but does not run
    ├── UnknownVersion       there is no such version here; the message lists those that are
    └── OtherVersion         the data in a folder was made by another version
"""

from collections.abc import Iterator
from contextlib import contextmanager

from outbox.errors import DovecoteError


class StackError(DovecoteError):
    """A server of the embedded stack is not in the requested state."""


class JavaMissing(StackError):
    """No Java of a sufficient version was found."""


class JarsMissing(StackError):
    """Jars could not be fetched."""


class JarsDiffer(JarsMissing):
    """The jars that were fetched have other checksums than those that are kept."""


class ServerFailed(StackError):
    """A server did not start or stop; the message quotes its log."""


class ServerNotRunning(StackError):
    """A server was to be paused or resumed, but does not run."""


class UnknownVersion(StackError):
    """There is no such version of a server here; the message lists those that are."""

    status = 2


class OtherVersion(StackError):
    """The data in a folder was made by another version of the server."""

    status = 2


@contextmanager
def explained() -> Iterator[None]:
    """Say in one line what the system refuses: a disk may be full, a folder may be a file."""
    try:
        yield
    except OSError as error:
        msg = (
            f"the stack cannot use {error.filename or 'one of its folders'}: "
            f"{error.strerror or error}; make room or allow it, or name other folders: "
            "--directory for data, and DOVECOTE_CACHE for what is fetched"
        )
        raise StackError(msg) from error
