"""Packages that come with an extra: the advice when one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from outbox.errors import BadSettings

_OURS = {"dedup", "dovecote", "outbox", "relay", "spark_jobs"}
_OF_PUSH = ("fastapi", "cryptography", "uvloop")


@contextmanager
def needs(extra: str, *, user: str) -> Iterator[None]:
    """
    Advise an extra if an import in the block finds a module missing that is none of ours.

    `user` is the part of Dovecote that needs it.

    Raises:
        BadSettings: the module is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # No extra brings a module of ours: that it is missing is a bug, which advice would hide.
        if error.name is None or error.name.partition(".")[0] in _OURS:
            raise
        raise BadSettings(_advice([error.name], extra, user)) from error


def require(*modules: str, extra: str, user: str) -> None:
    """
    Check that modules are installed, without an import.

    Raises:
        BadSettings: one of them is not.
    """
    if missing := [each for each in modules if find_spec(each) is None]:
        raise BadSettings(_advice(missing, extra, user))


def require_push() -> None:
    """
    Check that the packages that push needs are installed.

    Raises:
        BadSettings: one of them is not.
    """
    require(*_OF_PUSH, extra="push", user="push")


def _advice(missing: list[str], extra: str, user: str) -> str:
    return f"{user} needs {', '.join(missing)}: pip install 'dovecote[{extra}]'"
