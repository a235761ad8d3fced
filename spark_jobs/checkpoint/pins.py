"""The settings with which a checkpoint was made, and why a job may not go on with it."""

import json
from collections.abc import Mapping
from typing import TypeAlias

Pins: TypeAlias = Mapping[str, object]
"""Settings by name, in the form of JSON."""

JOB, QUERY, TOPICS = "job", "spark.query", "source.topics"
BEGAN = "source.began"
"""The offsets at which the query began; noted once."""
HASH = "state.hash"
"""How keys are laid into the buckets of a state."""
MURMUR2 = "murmur2"
FORMAT, SCHEMAS = "step.format.input", "step.schemas"
"""How the records in open windows are read; the fingerprint of each schema by its name."""
_ADOPTED = {QUERY, TOPICS}
"""Settings that may change if the operator of the job consents."""


def refusal(checkpoint: str, found: Pins, wanted: Pins, *, adopt: bool = False) -> str | None:
    """Return why `checkpoint`, made with `found`, does not fit a job with `wanted`, or None."""
    for name, value in wanted.items():
        if name == HASH and "state.buckets" in found and HASH not in found:
            return _refusal(checkpoint, name, "an earlier version's", value)
        # A version that did not know the setting has not pinned it.
        if name not in found or found[name] == value or (adopt and name in _ADOPTED):
            continue
        if name == SCHEMAS and not _other_schemas(found[name], value):
            continue
        return _refusal(checkpoint, name, found[name], value)
    return None


def _other_schemas(was: object, now: object) -> list[str]:
    """Return the names under which records were read by a schema that is no longer theirs."""
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        return []
    return [name for name, schema in was.items() if now.get(name) != schema]


def foreign(checkpoint: str) -> str:
    """Return the refusal of a checkpoint that none of our jobs has made."""
    return (
        f"{checkpoint} holds the checkpoint of a query that is not Dovecote's, or a part of one: "
        f"give this job a `spark.checkpoint` of its own, or {_ADOPT} to go on from what it says"
    )


_ADOPT = "run once with --adopt"


def _refusal(checkpoint: str, name: str, was: object, now: object) -> str:
    match name:
        case "job":
            return (
                f"the checkpoint {checkpoint} is that of `dovecote spark {was}`, not of "
                f"`dovecote spark {now}`: run that with it, or give this job a "
                "`spark.checkpoint` of its own"
            )
        case "spark.query":
            return (
                f"the checkpoint {checkpoint} is that of the query {was}, not of {now}: set "
                "`spark.query` back (markers and transactions carry it), give this job a "
                f"`spark.checkpoint` of its own, or {_ADOPT} to have the checkpoint go on under "
                "the new name"
            )
        case "source.topics":
            return (
                f"the checkpoint {checkpoint} is about the topics {_listed(was)}, not "
                f"{_listed(now)}: set `source.topics` back, or {_ADOPT}; new topics are then "
                "read from their first record, and unread records of removed topics are never "
                "read"
            )
        case "state.hash":
            return (
                f"the checkpoint {checkpoint} has its state in buckets by {was} hash, and this "
                f"version, with {now}, would not find it: begin with a new checkpoint at "
                "`source.starting_offsets`, and use `--adopt`, once"
            )
        case "step.format.input" | "step.schemas":
            return f"the checkpoint {checkpoint} {_about_windows(name, was, now)}"
        case _:
            return (
                f"the checkpoint {checkpoint} was made with {name} = {_listed(was)}, not "
                f"{_listed(now)}: set it back, or begin with a new checkpoint (and `--adopt`, "
                "once)"
            )


def _about_windows(name: str, was: object, now: object) -> str:
    if name == FORMAT:
        return (
            f"has windows whose records were read with format.input = {_listed(was)}, and "
            f"{_listed(now)} would exchange their fields: set it back, or begin with a new "
            "checkpoint (and `--adopt`, once)"
        )
    names = ", ".join(f'"{each}"' if each else "no" for each in _other_schemas(was, now))
    return (
        f"has windows whose records were read with other Avro schemas (of records with {names} "
        "schemaName): set them back and add new ones under other names, or begin with a new "
        "checkpoint (and `--adopt`, once)"
    )


def _listed(value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


PINNED = "dovecote.json"
"""The file that a job leaves in a new checkpoint before Spark does, with a `.crc` of it."""
