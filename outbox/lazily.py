"""Names of a package that are imported when they are asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """
    Return the `__getattr__` of a package that has these names, each from its module.

    Not everybody needs Kafka or Postgres. A type checker finds the names in imports under
    `TYPE_CHECKING`.
    """

    def find(name: str) -> object:
        if (module := modules.get(name)) is not None:
            return getattr(import_module(module), name)
        msg = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(msg)

    return find
