"""A step with the contents of all its files, so that a worker needs no file."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from dovecote.process import strict_json
from dovecote.process.settings.models import Settings
from outbox.errors import BadSettings
from spark_jobs.operators.aggregation import loading
from spark_jobs.operators.aggregation.config import Avro, Format, Located, Step

SCRIPTS = "scripts"
"""The script folder beside a configuration."""


class Text(Settings):
    """A file's contents."""

    path: str
    text: str
    default: bool = False
    id: int | None = None


class AggregationSettings(Settings):
    """`type = "aggregation"`: a step of a configuration, its scripts and its schemas."""

    type: Literal["aggregation"] = "aggregation"
    step: Step
    key: Text | None = None
    trigger: Text | None = None
    aggregate: Text | None = None
    variables: str = "{}"
    """The JSON object that scripts see as `Env.loadedVariables`."""
    input_schemas: tuple[Text, ...] = ()
    output_schemas: tuple[Text, ...] = ()

    @property
    def has_scripts(self) -> bool:
        return any((self.key, self.trigger, self.aggregate))

    @property
    def folds(self) -> bool:
        """The script of a window takes its events one by one, and none of them is kept."""
        return self.aggregate is not None and _has(self.aggregate, "fold")

    @property
    def concludes(self) -> bool:
        """The script of a window has a function for all of it."""
        return self.aggregate is not None and (not self.folds or _has(self.aggregate, "aggregate"))


def _has(script: Text, function: str) -> bool:
    return re.search(rf"^def\s+{function}\s*\(", script.text, re.MULTILINE) is not None


def load_step(file: Path, *, folders: Sequence[Path] = ()) -> AggregationSettings:
    """
    Return the step in `file`, with the files to which it refers.

    Raises:
        BadSettings: the file, or one to which it refers, is not valid.
    """
    step = loading.checked(Step, loading.read(file), file)
    return resolve(step, file.parent, folders or (file.parent / SCRIPTS, file.parent))


def resolve(step: Step, folder: Path, folders: Iterable[Path]) -> AggregationSettings:
    """
    Return `step` with its files; `classpath` means `folders`.

    Raises:
        BadSettings: a file is missing or is not text.
    """
    files = _Files(folder, tuple(folders))
    trigger = step.trigger if isinstance(step.trigger, Located) else None
    variables = files.text("environmentVariables", step.environment_variables)
    return AggregationSettings(
        step=step,
        key=files.text("key", step.key if isinstance(step.key, Located) else None),
        trigger=files.text("trigger", trigger),
        aggregate=files.text("dsl", step.dsl),
        variables="{}" if variables is None else _object(variables),
        input_schemas=files.schemas("format.input", step.format.input),
        output_schemas=files.schemas("format.output", step.format.output),
    )


class _Files:
    def __init__(self, folder: Path, folders: tuple[Path, ...]) -> None:
        self._folder, self._folders = folder, folders

    def text(self, field: str, located: Located | None) -> Text | None:
        if located is None:
            return None
        places = [self._folder] if located.source == "file" else self._folders
        for place in places:
            file = place / located.path
            if located.source == "classpath" and not _is_within(file, place):
                msg = f"{field}.path: {located.path} leads out of {place}"
                raise BadSettings(msg)
            if file.is_file():
                try:
                    return Text(path=located.path, text=file.read_text("utf-8"))
                except (OSError, UnicodeDecodeError) as error:
                    msg = f"{field}.path: cannot read {file}: {error}"
                    raise BadSettings(msg) from error
        looked = ", ".join(map(str, places))
        msg = f"{field}.path: there is no file {located.path} in {looked}"
        raise BadSettings(msg)

    def schemas(self, field: str, format_: Format) -> tuple[Text, ...]:
        if not isinstance(format_, Avro):
            return ()
        found = (
            (self.text(f"{field}.schema.{n}", each), each)
            for n, each in enumerate(format_.schema_)
        )
        return tuple(
            text.model_copy(update={"default": each.default, "id": each.id})
            for text, each in found
            if text is not None
        )


def _is_within(file: Path, folder: Path) -> bool:
    return file.resolve().is_relative_to(folder.resolve())


def _object(variables: Text) -> str:
    # Parsed here, so that a mistake stops the start, and not each call of a script.
    import orjson

    try:
        strict_json.loads(variables.text)
        found: Any = orjson.loads(variables.text)
    except ValueError as error:
        msg = f"environmentVariables.path: {variables.path} is not JSON: {error}"
        raise BadSettings(msg) from error
    if not isinstance(found, dict):
        msg = f"environmentVariables.path: {variables.path} must hold a JSON object"
        raise BadSettings(msg)
    return orjson.dumps(found).decode()
