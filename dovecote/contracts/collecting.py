"""Find the event classes of modules, and make the contract of each."""

import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from dovecote.contracts.rules.contract import Contract, place
from dovecote.contracts.schemas import schema_of
from outbox.errors import BadSettings
from outbox.writing.declared import Declared, declared


def contracts_of(modules: Iterable[str]) -> list[Contract]:
    """
    Return the contracts of all event classes that modules have, by topic, type and version.

    Classes that they import count, too. Modules are imported as Python would from the current
    folder, and so their code runs.

    Raises:
        BadSettings: a module cannot be imported, none of them has an event class, or a class has
            no schema.
    """
    names = list(modules)
    if not names:
        msg = (
            "no module is named; give --module shop.events, or `modules` in the file's [contracts]"
        )
        raise BadSettings(msg)
    kinds: dict[type, Declared] = {}
    for name in names:
        kinds |= dict(_classes(_imported(name)))
    if not kinds:
        msg = (
            f"no class with @event(…) in {', '.join(names)}; name the modules with the classes "
            "themselves"
        )
        raise BadSettings(msg)
    return sorted((_contract(kind, known) for kind, known in kinds.items()), key=place)


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except Exception as error:
        # Any exception may come from code of users.
        msg = f"module {name!r} cannot be imported: {type(error).__name__}: {error}"
        raise BadSettings(msg) from error


def _classes(module: ModuleType) -> Iterator[tuple[type, Declared]]:
    for each in vars(module).values():
        if inspect.isclass(each) and (known := declared(each)) is not None:
            yield each, known


def _contract(kind: type, known: Declared) -> Contract:
    key = known.key
    if callable(key):
        key = f"function {getattr(key, '__qualname__', type(key).__qualname__)}"
    return Contract(
        topic=known.topic,
        type=known.type,
        version=known.version,
        key=key,
        subject=known.subject,
        source=known.source,
        dataschema=known.dataschema,
        of=f"{kind.__module__}.{kind.__qualname__}",
        schema=schema_of(kind),
    )
