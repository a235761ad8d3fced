"""
HOCON, with all escapes of JSON, and texts that are numbers where a setting wants a number.

A file reaches nothing but the files in its own folder, unless the operator lets it: otherwise
its author could read the environment and the disk of the job, and any address.
"""

import json
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

# No text has this character. It stands for `\u` until pyhocon is done.
_MARK = "\ufdd0"
_ESCAPES = {"\\u": _MARK, "\\/": "/", "\\b": "\b", "\\f": "\f"}
_HALF = r"four hexadecimal digits follow \u, and \ud800 to \udfff come in pairs"
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Loose(str):
    """A text that stands for a number or a truth where one is wanted, as HOCON says."""

    __slots__ = ()

    def as_int(self) -> int | None:
        """Return the whole number that it stands for, if it does for one."""
        return int(self) if re.fullmatch(r"[+-]?[0-9]{1,18}", self) else None

    def as_bool(self) -> bool | None:
        """Return the truth that it stands for, if it does for one."""
        return _TRUTHS.get(self)


REACH = "DOVECOTE_HOCON"
"""The variable with what files may reach: `environment`, `includes`, or both with a comma."""

_patching = threading.RLock()


def reach(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """
    Return what the operator lets files reach.

    Raises:
        ValueError: the variable has another word.
    """
    found = frozenset(each for each in re.split(r"[,\s]+", environ.get(REACH, "")) if each)
    if unknown := sorted(found - {"environment", "includes"}):
        msg = f"{REACH} is `environment`, `includes` or both with a comma, not {unknown[0]!r}"
        raise ValueError(msg)
    return found


@contextmanager
def _within(folder: Path, allowed: Collection[str]) -> Iterator[None]:
    """Let pyhocon reach nothing but files in `folder` meanwhile, and what is allowed."""
    from pyhocon import config_parser

    class Within(config_parser.ConfigFactory):  # type: ignore[misc]  # it has no types
        @classmethod
        def parse_file(cls, filename: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401  # pyhocon's
            if not Path(filename).resolve().is_relative_to(folder.resolve()):
                _refuse(f"`include` of {filename}, which is not in the folder of the step")
            return super().parse_file(filename, *given, **named)

        @classmethod
        def parse_URL(cls, url: str, *_: Any, **__: Any) -> Any:  # noqa: ANN401, N802  # pyhocon's
            _refuse(f"`include` of the address {url}")

    def package(*_: object) -> NoReturn:
        _refuse("`include package`")

    parser = config_parser.ConfigParser
    kept = config_parser.ConfigFactory, config_parser.os, parser.__dict__["resolve_package_path"]
    with _patching:
        try:
            if "includes" not in allowed:
                config_parser.ConfigFactory = Within
                parser.resolve_package_path = staticmethod(package)
            if "environment" not in allowed:
                config_parser.os = SimpleNamespace(path=os.path, environ={})
            yield
        finally:
            config_parser.ConfigFactory, config_parser.os, parser.resolve_package_path = kept


def _refuse(what: str) -> NoReturn:
    msg = f"{what} is not allowed; if you trust the file, set {REACH}=includes"
    raise ValueError(msg)


def loads(text: str, folder: Path) -> object:
    """
    Return what `text` holds; what it includes is looked for in `folder`.

    Raises:
        ValueError: it is not HOCON, or includes a file that is not there or may not be read.
    """
    from pyhocon import ConfigFactory
    from pyhocon.config_parser import ConfigParser
    from pyhocon.exceptions import ConfigException, ConfigSubstitutionException
    from pyparsing import ParseBaseException

    # It reads included files with the class itself, so that no subclass would do.
    ConfigParser.REPLACEMENTS.update(_ESCAPES)
    try:
        with _within(folder, reach()):
            found = ConfigFactory.parse_string(text, basedir=str(folder))
    except ImportError as error:
        msg = f"include package: {error}"
        raise ValueError(msg) from error
    except ConfigSubstitutionException as error:
        allowed = "environment" in reach()
        more = "" if allowed else f"; the environment is read only with {REACH}=environment"
        msg = f"{error}{more}"
        raise ValueError(msg) from error
    except (ConfigException, ParseBaseException, OSError) as error:  # or what it includes is away
        raise ValueError(str(error)) from error
    except (AttributeError, LookupError, TypeError) as error:
        # So it fails on a pattern without files, and on a module that is no package.
        msg = f"an `include` finds nothing, or a value cannot be put together ({error})"
        raise ValueError(msg) from error
    if hasattr(found, "as_plain_ordered_dict"):
        found = found.as_plain_ordered_dict()
    return _plain(found)


def _plain(value: Any) -> object:  # noqa: ANN401  # pyhocon's
    if isinstance(value, Mapping):
        return {_name(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, str):
        return Loose(_unescaped(value))
    # Its periods, such as 10 s, are dateutil's.
    if type(value).__name__ == "relativedelta":
        if value.years or value.months:
            msg = "years and months have no one length: write days"
            raise ValueError(msg)
        value = value.normalized()
        return timedelta(
            value.days, value.seconds, value.microseconds, 0, value.minutes, value.hours
        )
    return value


def _name(name: str) -> str:
    # Only names in quotes have escapes, and pyhocon leaves them as they are.
    return _json(name) if "\\" in name else name


def _unescaped(text: str) -> str:
    if _MARK not in text:
        return text
    text = re.sub(
        rf"(?:{_MARK}[0-9a-fA-F]{{4}})+", lambda it: _json(it[0].replace(_MARK, r"\u")), text
    )
    if _MARK in text:
        raise ValueError(_HALF)
    return text


def _json(escaped: str) -> str:
    try:
        text = str(json.loads(f'"{escaped}"'))
    except ValueError as error:
        raise ValueError(_HALF) from error
    if re.search("[\ud800-\udfff]", text):
        raise ValueError(_HALF)
    return text
