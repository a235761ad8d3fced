"""Turn files in HOCON, YAML or JSON into checked models, with errors that name the path."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dovecote.process import strict_json
from dovecote.process.plainly import words
from dovecote.process.settings.explaining import CONSEQUENCE
from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.languages import hocon
from spark_jobs.operators.aggregation.languages.hocon import Loose

M = TypeVar("M", bound=BaseModel)

SUFFIXES = (".conf", ".hocon", ".json", ".yaml", ".yml")

_ABSENT = object()
# The most characters of what a parser says: pyhocon may list all that it would have taken.
_LONGEST = 500
_OWN = {
    # Only topics' names have a pattern here.
    "string_pattern_mismatch": "must be the name of a topic: letters, digits, dots, - and _",
}
# How a text of HOCON is read where something else is wanted.
_MEANT: Mapping[str, Callable[[Loose], object]] = {
    "int_type": Loose.as_int,
    "bool_type": Loose.as_bool,
}


def read(file: Path) -> dict[str, Any]:
    """
    Return the contents of `file`; its suffix determines the language.

    Raises:
        BadSettings: the file cannot be read, or does not match its language.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise BadSettings(msg) from error
    except UnicodeDecodeError:
        msg = f"{file} is not UTF-8 text"
        raise BadSettings(msg) from None
    return parse(text, file)


def parse(text: str, file: Path) -> dict[str, Any]:
    """Like `read`, for the text of `file`."""
    if file.suffix not in SUFFIXES:
        msg = f"{file}: a configuration ends in one of {', '.join(SUFFIXES)}"
        raise BadSettings(msg)
    language = {".json": "JSON", ".yaml": "YAML", ".yml": "YAML"}.get(file.suffix, "HOCON")
    parser = {"JSON": _json, "YAML": _yaml}.get(language, partial(hocon.loads, folder=file.parent))
    try:
        found = parser(text)
    except ImportError as error:
        msg = f"cannot read {file}: {error.name} is not installed: pip install 'dovecote[spark]'"
        raise BadSettings(msg) from error
    except ValueError as error:
        msg = f"{file} is not {language}: {_one_line(error)}"
        raise BadSettings(msg) from error
    except RecursionError:
        msg = f"{file} nests too deeply"
        raise BadSettings(msg) from None
    if not isinstance(found, dict):
        msg = f"{file} must hold an object"
        raise BadSettings(msg)
    return found


def checked(
    model: type[M],
    found: Mapping[str, Any],
    origin: Path | str,
    environ: Mapping[str, str] | None = None,
) -> M:
    """
    Return `found` as `model`; `{ env = … }` in it points into `environ`.

    Raises:
        BadSettings: a field is missing, unknown or impossible; the message names its path.
    """
    try:
        return model.model_validate(found, context={"environ": environ or {}})
    except ValidationError as error:
        if meant := _as_meant(found, error):
            return checked(model, meant, origin, environ)
        lines = "\n  ".join(_explained(found, error))
        msg = f"bad configuration ({origin}):\n  {lines}"
        raise BadSettings(msg) from None


def _json(text: str) -> object:
    return strict_json.loads(text)


def _yaml(text: str) -> object:
    import yaml

    from spark_jobs.operators.aggregation.languages.yaml_core import Loader

    try:
        return yaml.load(text, Loader)  # noqa: S506  # derived from the safe one
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _as_meant(found: Mapping[str, Any], error: ValidationError) -> Mapping[str, Any] | None:
    """Return `found` with the numbers and truths that texts of HOCON stand for, if any do."""
    copied: Any = _copied(found)
    is_changed = False
    for each in error.errors(include_url=False, include_input=False):
        read = _MEANT.get(each["type"])
        path = [*_path(found, each["loc"], each["type"])]
        if read is None or not path:
            continue
        holder: Any = reduce(_inner, path[:-1], copied)
        text = _inner(holder, path[-1])
        if isinstance(text, Loose) and (meant := read(text)) is not None:
            holder[path[-1]] = meant
            is_changed = True
    return copied if is_changed else None


def _copied(value: Any) -> Any:  # noqa: ANN401  # of a file
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _explained(found: Mapping[str, Any], error: ValidationError) -> Iterator[str]:
    problems = [
        each
        for each in error.errors(include_url=False, include_input=False)
        if each["type"] != CONSEQUENCE
    ]
    for each in problems:
        if _is_only_what_is_left(each["loc"], each["type"], problems):
            continue
        where = ".".join(map(str, _path(found, each["loc"], each["type"])))
        if each["type"] == "union_tag_invalid":
            expected = each["ctx"]["expected_tags"]
            what = f'type "{each["ctx"]["tag"]}" is none of {expected}'
        elif each["type"] == "union_tag_not_found":
            what = "type is missing"
        else:
            what = words(each["type"], each["msg"], _OWN)
        yield f"{where}: {what}" if where else what


def _is_only_what_is_left(
    loc: Sequence[str | int], kind: str, problems: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether a list is too short only because its elements are wrong, as reported."""
    return kind == "too_short" and any(
        len(each["loc"]) > len(loc) and each["loc"][: len(loc)] == loc for each in problems
    )


def _path(found: object, loc: Sequence[str | int], kind: str) -> Iterator[str | int]:
    """Yield the path without the tags of unions, which are not in the file."""
    for depth, part in enumerate(loc, 1):
        inner = _inner(found, part)
        is_last = depth == len(loc)
        if inner is _ABSENT or not (is_last or isinstance(inner, Mapping | list)):
            if not is_last or kind not in {"missing", "extra_forbidden"}:
                continue
        else:
            found = inner
        yield part


def _inner(found: object, part: str | int) -> object:
    if isinstance(found, Mapping):
        return found.get(part, _ABSENT)
    is_there = isinstance(found, list) and isinstance(part, int) and part < len(found)
    return found[part] if is_there else _ABSENT  # type: ignore[index]  # a list, as was just asked


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
