"""Names of a package that are imported when they are asked for, and what to install for them."""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module

_OURS = {"dedup", "dovecote", "outbox", "relay", "spark_jobs"}


def lazy(
    package: str, modules: Mapping[str, str], *, extra: str | None = None
) -> Callable[[str], object]:
    """
    Return the `__getattr__` of a package that has these names, each from its module.

    Not everybody needs Kafka or Postgres. A type checker finds the names in imports under
    `TYPE_CHECKING`. If a package is missing that comes with `extra`, the error says so.
    """

    def find(name: str) -> object:
        if (module := modules.get(name)) is None:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if extra is None or (missing := of_others(error)) is None:
                raise
            msg = advice([missing], extra, f"{package}.{name}")
            raise ModuleNotFoundError(msg, name=missing) from error

    return find


def of_others(error: ModuleNotFoundError) -> str | None:
    """Return the name of the missing module, or None if it is one of ours."""
    # No extra brings a module of ours: that it is missing is a bug, which advice would hide.
    if error.name is None or error.name.partition(".")[0] in _OURS:
        return None
    return error.name


def advice(missing: Collection[str], extra: str, user: str) -> str:
    """Return what to install for `user`, a part of Dovecote that needs the missing modules."""
    return f"{user} needs {', '.join(missing)}: pip install 'dovecote[{extra}]'"
