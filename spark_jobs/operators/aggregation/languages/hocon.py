"""HOCON, with all escapes of JSON, and texts that are numbers where a setting wants a number."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

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


def loads(text: str, folder: Path) -> object:
    """
    Return what `text` holds; what it includes is looked for in `folder`.

    Raises:
        ValueError: it is not HOCON, or a file or package that it includes is not there.
    """
    from pyhocon import ConfigFactory
    from pyhocon.config_parser import ConfigParser
    from pyhocon.exceptions import ConfigException
    from pyparsing import ParseBaseException

    # It reads included files with the class itself, so that no subclass would do.
    ConfigParser.REPLACEMENTS.update(_ESCAPES)
    try:
        found = ConfigFactory.parse_string(text, basedir=str(folder))
    except ImportError as error:
        msg = f"include package: {error}"
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
