"""The `[operator]` table of a job's file, as far as it describes a policy."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dedup.rules.policies.decode import Format
from dovecote.process.settings.models import Settings
from dovecote.process.settings.values import Duration


class PolicySettings(Settings):
    """Settings that every policy has."""

    type: str
    """Name of the policy; may be left out if the command names it."""

    key: Literal["record"] | Annotated[tuple[str, ...], Field(min_length=1)] = "record"
    """How records are grouped: by the record's own key, or by fields of the value."""

    filter: str | None = None
    """A Starlark expression over value, key, headers, or `module:function`; None: all pass."""

    handler: str | None = None
    """`module:function`; None: every record that passes counts as handled."""

    value: Format = "json"
    """Format of the record values."""

    batch_size: Annotated[int, Field(ge=1)] = 500
    """Records in a batch, of all keys together."""

    remember: Duration | None = None
    """
    Largest distance in time between duplicates of an event that are still recognised, whatever
    batches they come in; absent: a policy knows only its batch.
    """

    @model_validator(mode="before")
    @classmethod
    def _is_of_this_type(cls, table: Any) -> Any:  # noqa: ANN401  # whatever the file holds there
        # Check this first: otherwise a table for another operator fails by fields that are right
        # for it.
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
    """How duplicates are recognised: by the event id and round, or by the bytes of the value."""


class LatestSettings(PolicySettings):
    """`type = "latest"`: the newest that passes is handled."""

    type: Literal["latest"] = "latest"
