"""The `[inbox]` table of a consumer."""

from datetime import timedelta

from pydantic import Field, field_validator

from dedup.inbox.choices import DEFAULT_SCHEMA, Prepare
from dovecote.process.settings.models import Settings
from dovecote.process.settings.values import Dsn, Duration


class InboxSettings(Settings):
    """
    Where the consumer remembers the events that it has handled, in its handler's transaction.
    """

    dsn: Dsn
    """The database: a libpq connection string or a table of libpq parameters (TLS and all)."""

    schema_name: str = Field(default=DEFAULT_SCHEMA, alias="schema")
    """The Postgres schema that holds the inbox."""

    retention: Duration = timedelta(days=7)
    """How long an event is remembered. A duplicate that comes later is handled again."""

    answer_within: Duration = timedelta(minutes=1)
    """
    How long the server may be silent within one statement, including those of a handler. Then its
    connection is closed, and the event is handled again.
    """

    prepare: Prepare = "auto"
    """Whether the driver prepares statements on the server: `auto`, unless a pooler shares the
    sessions, or `never`, for a pooler that cannot be recognised."""

    @field_validator("retention")
    @classmethod
    def _long_enough(cls, value: timedelta) -> timedelta:
        if value < timedelta(minutes=1):
            msg = "must be at least 1m"
            raise ValueError(msg)
        return value

    @field_validator("answer_within")
    @classmethod
    def _some_time(cls, value: timedelta) -> timedelta:
        if value < timedelta(seconds=1):
            msg = "must be at least 1s"
            raise ValueError(msg)
        return value

    @property
    def patience(self) -> float:
        """`answer_within` in seconds."""
        return self.answer_within.total_seconds()
