"""The `[inbox]` table of a consumer."""

from datetime import timedelta

from pydantic import Field, field_validator

from dedup.inbox_schema import DEFAULT_SCHEMA
from outbox.settings import Dsn, Duration, Settings


class InboxSettings(Settings):
    """Where the consumer remembers what it has handled, in its handler's own transaction."""

    dsn: Dsn
    """The database: a libpq connection string or a table of libpq parameters (TLS and all)."""

    schema_name: str = Field(default=DEFAULT_SCHEMA, alias="schema")
    """The Postgres schema the inbox is installed in."""

    retention: Duration = timedelta(days=7)
    """For how long an event is remembered. A copy that comes later is handled again."""

    @field_validator("retention")
    @classmethod
    def _long_enough(cls, value: timedelta) -> timedelta:
        if value < timedelta(minutes=1):
            msg = "must be at least 1m"
            raise ValueError(msg)
        return value
