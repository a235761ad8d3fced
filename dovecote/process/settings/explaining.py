"""Say in plain words what is wrong with settings, and where it was set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dovecote.process.plainly import words
from dovecote.process.settings.fields import fields_of, is_open, table_of
from dovecote.process.settings.references import UNSET, is_pointer

_OWN = {
    "extra_forbidden": "there is no such setting",
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), "must be a table"),
}

CONSEQUENCE = "default_factory_not_called"
"""
pydantic's error for a default that depends on another setting, which is wrong; it reports the
cause as well.
"""


@dataclass(frozen=True, slots=True)
class Given:
    """The sources of the settings, so that an error can name the one at fault."""

    model: type[BaseModel]
    data: Mapping[str, Any]
    file: Path | None
    prefix: str

    def remark(self, kind: str, path: Sequence[str | int]) -> str:
        """
        Return what to add to an error of this kind: where the setting was set, or can be set.
        """
        if kind == "missing":
            return self._remedy(path)
        source = self._source(path, pointing=kind != "extra_forbidden")
        wanted = self._meant(path) if kind == "extra_forbidden" and source else ""
        return source + wanted

    def _remedy(self, path: Sequence[str | int]) -> str:
        if self.file is not None or len(path) != 1:
            return ""
        field = fields_of(self.model).get(str(path[0]))
        inner = "__BOOTSTRAP_SERVERS" if field and is_open(field) else ""
        inner = "__…" if field and table_of(field) else inner
        return f"; give --config, or set {self.prefix}_{str(path[0]).upper()}{inner}"

    def _source(self, path: Sequence[str | int], *, pointing: bool) -> str:
        """Return what set it; unless `pointing`, a variable that the file points to did not."""
        found: Any = self.data
        for part in path:
            if not isinstance(found, dict) or part not in found or is_pointer(found):
                break
            found = found[part]
        if found is self.data:
            return ""
        match found:
            case {"env": str(name)} if pointing or name.startswith(f"{self.prefix}_"):
                return f" (set by {name})"
            case {**inner} if inner and (variable := _variable(inner, self.prefix)):
                return f" (set by {variable})"
            # If the environment sets nothing, the file is named already.
            case _ if (
                self.file is not None and _points(self.data) and not (pointing and _points(found))
            ):
                return f" (set in {self.file})"
            case _:
                return ""

    def _meant(self, path: Sequence[str | int]) -> str:
        """Return the variable that was meant when one underscore stands for two."""
        name = str(path[0])
        if len(path) != 1 or self.data[name] != {"env": f"{self.prefix}_{name.upper()}"}:
            return ""
        for table, field in fields_of(self.model).items():
            rest = name.removeprefix(f"{table}_")
            inner = table_of(field)
            if rest != name and (is_open(field) or (inner and rest in fields_of(inner))):
                wanted = f"{self.prefix}_{table}__{rest}".upper()
                return f"; a table takes two underscores: {wanted}"
        return ""


def _variable(value: object, prefix: str) -> str | None:
    """
    Return a variable that sets something in it, if that variable's name has one table too many.

    A variable that the file itself points to is none.
    """
    match value:
        case {"env": str(name)}:
            return name if name.startswith(f"{prefix}_") else None
        case {**inner}:
            found = (_variable(each, prefix) for each in inner.values())
            return next(filter(None, found), None)
        case _:
            return None


def _points(value: object) -> bool:
    """Return whether any part of it is a pointer."""
    return isinstance(value, dict) and (is_pointer(value) or any(map(_points, value.values())))


def explain(origin: str, error: ValidationError, given: Given) -> str:
    """Return a line for each setting that is wrong; `origin` names where all of them are from."""
    lines = []
    for found in error.errors(include_url=False, include_input=False):
        if found["type"] == CONSEQUENCE:
            continue
        what = words(found["type"], found["msg"], _OWN)
        where = ".".join(str(part) for part in found["loc"])
        if not what.startswith(UNSET):  # it names the variable already
            what += given.remark(found["type"], found["loc"])
        lines.append(f"{where}: {what}" if where else what)
    return f"bad settings ({origin}):\n  " + "\n  ".join(lines)
