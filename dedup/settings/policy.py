"""The `[operator]` table of a job's file, as far as it describes a policy."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dedup.rules.policies.decode import Format
from dovecote.process.settings import Duration, Settings


class PolicySettings(Settings):
    """What every policy needs to know."""

    type: str
    """Which policy; may be left out where the command names it."""

    key: Literal["record"] | Annotated[tuple[str, ...], Field(min_length=1)] = "record"
    """What records are grouped by: the record's own key, or fields of the value."""

    filter: str | None = None
    """A Starlark expression over value, key, headers, or `module:function`; None: all pass."""

    handler: str | None = None
    """`module:function`; None: every record that passes is handled."""

    value: Format = "json"
    """How record values are written."""

    batch_size: Annotated[int, Field(ge=1)] = 500
    """Records in a batch, of all keys together."""

    remember: Duration | None = None
    """How far apart in time copies of an event may be and are still found, whatever batches they
    come in; absent: a policy knows its batch only."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_this_type(cls, table: Any) -> Any:  # noqa: ANN401  # whatever the file holds there
        # Before the fields, or a table for another operator fails by fields it rightly has.
        wanted = cls.model_fields["type"].default
        found = table.get("type", wanted) if isinstance(table, dict) else wanted
        if found != wanted:
            msg = f'type is "{found}" here, but {wanted} was asked for'
            raise ValueError(msg)
        return table


class FirstMatchSettings(PolicySettings):
    """`type = "first_match"`: the first that passes and succeeds wins its key."""

    type: Literal["first_match"] = "first_match"


class ExactSettings(PolicySettings):
    """`type = "exact"`: each event is handled once."""

    type: Literal["exact"] = "exact"

    by: Literal["id", "value"] = "id"
    """What makes two records copies: the event id and round, or the bytes of the value."""


class LatestSettings(PolicySettings):
    """`type = "latest"`: the newest that passes is handled."""

    type: Literal["latest"] = "latest"
