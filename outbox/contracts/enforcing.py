"""Refuse events that do not fit their contract, or warn of them."""

import json
import logging
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from outbox.contracts import gate
from outbox.contracts.formats import CHECKED
from outbox.errors import BadSettings, InvalidEvent
from outbox.event import Event
from outbox.lazily import advice

Mode: TypeAlias = Literal["off", "warn", "refuse"]
_FORM = 1
_MOST_SAID = 200
_SAID_WITHOUT_VALUES = {"required", "additionalProperties", "unevaluatedProperties"}
"""Keywords of which jsonschema's message has names of properties, and no value."""

_log = logging.getLogger("outbox.contracts")


def enforce(file: str | PathLike[str], mode: Mode = "refuse") -> None:
    """
    Check each event that this process writes, or sends, against the contracts of a file.

    `refuse` raises `InvalidEvent` before anything is written; `warn` logs a warning to
    `outbox.contracts`, and writes the event; `off` ends the checks. An event is checked if the
    file has its topic and type, its value is JSON, and it is no tombstone. Messages name the place
    in the value, and not what is there.

    Raises:
        BadSettings: there is no such mode or file, a `$ref` in it leads nowhere, or `jsonschema`
            is not installed.
    """
    if mode not in get_args(Mode):
        msg = f"mode {mode!r} is none of {', '.join(get_args(Mode))}"
        raise BadSettings(msg)
    gate.check = None if mode == "off" else _Check(_validators(Path(file)), mode, Path(file).name)


class _Check:
    """A check of one event after another."""

    def __init__(
        self, validators: Mapping[tuple[str, str], Mapping[str | None, Any]], mode: str, file: str
    ) -> None:
        self._validators, self._mode, self._file = validators, mode, file

    def __call__(self, event: Event[Any]) -> None:
        """
        Check an event.

        Raises:
            InvalidEvent: it does not fit, and the mode is to refuse it.
        """
        known = self._validators.get((event.topic, event.type))
        if known is None or event.value is None or not _is_json(event.media_type()):
            return
        if (wrong := self._wrong(event, known)) is None:
            return
        msg = f"event {event.topic}/{event.type} does not fit its contract: {wrong}"
        if self._mode == "refuse":
            raise InvalidEvent(msg)
        _log.warning("%s", msg)

    def _wrong(self, event: Event[Any], known: Mapping[str | None, Any]) -> str | None:
        version = event.attribute("dataversion")
        found = known.get(version)
        if found is None and version is None and len(known) == 1:
            (found,) = known.values()
        if found is None:
            said = "an event without a version" if version is None else f"version {version[:20]}"
            return f"{self._file} has nothing for {said}; export it, or set the header"
        try:
            value = json.loads(event.value_bytes() or b"")
        except RecursionError:
            return "value: it nests too deeply"
        except ValueError:
            return "value: it is no JSON, and its content type says so"
        try:
            error = import_module("jsonschema.exceptions").best_match(found.iter_errors(value))
            return None if error is None else _said(error)
        except RecursionError:
            return "value: it, or its schema, nests too deeply"
        except Exception as error:  # noqa: BLE001  # a schema may lead the library anywhere
            # Its text may have the value.
            return f"value: {self._file} has a schema that cannot check it ({_kind(error)})"


def _kind(error: Exception) -> str:
    return type(error).__name__.lstrip("_")


def _said(error: Any) -> str:  # noqa: ANN401  # jsonschema's own
    path = "value" + "".join(
        f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.absolute_path
    )
    if error.validator in _SAID_WITHOUT_VALUES:
        why = error.message
    else:
        why = f"it must have {error.validator} {json.dumps(error.validator_value)}"
    return f"{path[:_MOST_SAID]}: {why[:_MOST_SAID]}"


def _is_json(media_type: str | None) -> bool:
    kind = (media_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _validators(file: Path) -> dict[tuple[str, str], dict[str | None, Any]]:
    try:
        library = import_module("jsonschema")
    except ModuleNotFoundError as error:
        raise BadSettings(advice(["jsonschema"], "contracts", "outbox.contracts")) from error
    remedy = "write it with `dovecote contracts export`"
    try:
        whole = json.loads(file.read_bytes())
        form, contracts = whole["dovecote"], whole["contracts"]
    except OSError as error:
        msg = f"{file}: {error.strerror}; {remedy}"
        raise BadSettings(msg) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{file} is no file of contracts; {remedy}"
        raise BadSettings(msg) from error
    if form != _FORM:
        msg = f"{file} is no file of contracts that this version knows; {remedy}"
        raise BadSettings(msg)
    referencing = import_module("referencing")
    checker, registry = library.FormatChecker(formats=()), referencing.Registry()
    for name, check in CHECKED.items():
        checker.checks(name, ValueError)(check)
    found: dict[tuple[str, str], dict[str | None, Any]] = {}
    try:
        for each in contracts:
            library.Draft202012Validator.check_schema(each["schema"])
            _require_resolved(each["schema"])
            version = None if each["version"] is None else str(each["version"])
            found.setdefault((each["topic"], each["type"]), {})[version] = (
                # With a registry of ours, nothing is fetched from the network.
                library.Draft202012Validator(
                    each["schema"], registry=registry, format_checker=checker
                )
            )
    except RecursionError as error:
        msg = f"{file} has a contract that nests too deeply; {remedy}"
        raise BadSettings(msg) from error
    except referencing.exceptions.Unresolvable as error:
        msg = (
            f"{file} has a contract whose $ref {error.ref[:_MOST_SAID]!r} leads nowhere; {remedy}"
        )
        raise BadSettings(msg) from error
    except (KeyError, TypeError, library.SchemaError) as error:
        msg = f"{file} has a contract that cannot be used: {str(error)[:_MOST_SAID]}; {remedy}"
        raise BadSettings(msg) from error
    return found


def _require_resolved(schema: Any) -> None:  # noqa: ANN401  # JSON
    """
    Check that each reference in a schema leads somewhere: within it, or to a meta-schema.

    Raises:
        Unresolvable: one does not; it is the library's own error.
    """
    library = import_module("referencing.jsonschema")
    root = library.DRAFT202012.create_resource(schema)
    registry = import_module("jsonschema_specifications").REGISTRY
    open_ = [(registry.resolver_with_root(root), root)]
    while open_:
        resolver, found = open_.pop()
        if isinstance(found.contents, dict):
            for keyword in ("$ref", "$dynamicRef"):
                if keyword in found.contents:
                    resolver.lookup(found.contents[keyword])
        open_ += [(resolver.in_subresource(each), each) for each in found.subresources()]
