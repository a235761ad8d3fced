"""Packages that come with an extra: the commands that need them, and advice if one is missing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from outbox.errors import BadSettings
from outbox.lazily import advice, of_others

EXTRAS: Mapping[str, str | None] = {
    "init": None,
    "relay": "relay",
    "consume": "consume",
    "push": "push",
    "spark": "spark",
    "replay": "consume",
    "schema": "relay",
    "topic": "consume",
    "dead": "consume",
    "find": "consume",
    "audit": "consume",
    "console": "push",
    "contracts": "contracts",
    "stack": "stack",
    "demo": "demo",
}
"""The extra of each command of `dovecote`; None: it needs none."""

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
        if (missing := of_others(error)) is None:
            raise
        raise BadSettings(advice([missing], extra, user)) from error


def require(*modules: str, extra: str, user: str) -> None:
    """
    Check that modules are installed, without an import.

    Raises:
        BadSettings: one of them is not.
    """
    if missing := [each for each in modules if find_spec(each) is None]:
        raise BadSettings(advice(missing, extra, user))


def require_push() -> None:
    """
    Check that the packages that push needs are installed.

    Raises:
        BadSettings: one of them is not.
    """
    require(*_OF_PUSH, extra="push", user="push")
