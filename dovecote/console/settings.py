"""Settings of `dovecote console`: the file that names the parts, with a table of its own."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from dovecote.observe.sources import Url, WatchSettings
from dovecote.process.http.hosts import is_loopback
from dovecote.process.settings.models import Settings
from dovecote.process.settings.values import HostName, PositiveDuration, pointed

AccessRight: TypeAlias = Literal["read", "write"]

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_EVERY = timedelta(minutes=1)
_MOST_HOURS = timedelta(hours=48)
_LEAST_TIMEOUT, _MOST_TIMEOUT = timedelta(milliseconds=1), timedelta(hours=1)


def _text(value: object, info: ValidationInfo) -> object:
    return pointed(value, info)


def _hash(value: str) -> str:
    if not _HASH.fullmatch(value):
        msg = "write sha256: and 64 hexadecimal digits, as `dovecote push token` does"
        raise ValueError(msg)
    return value


Digest: TypeAlias = Annotated[str, BeforeValidator(_text), AfterValidator(_hash)]


class ConsoleHttpSettings(Settings):
    """Where to serve the page, its API, /metrics, /healthz and /readyz."""

    host: str = "127.0.0.1"
    """Address to listen on; any but loopback needs `console.tokens`."""

    port: int = Field(default=8090, ge=0, le=65535)
    """Port; 0: any free one (it is logged)."""

    hosts: tuple[HostName, ...] = ()
    """
    Names under which requests may ask for it, such as a TLS proxy's; `localhost`, `host` and,
    unless that is loopback, any address and the machine's own name always count.
    """


class ConsoleTokenSettings(Settings):
    """One token of the console, and what it may do."""

    sha256: Digest
    """`sha256:…` of the token; `dovecote push token` makes both."""

    rights: tuple[AccessRight, ...] = ("read",)
    """`read`: look. `write`: requeue and drop, where `console.write` is true."""


class ConsoleTable(Settings):
    """The console itself."""

    http: ConsoleHttpSettings = ConsoleHttpSettings()

    tokens: dict[str, ConsoleTokenSettings] = Field(default_factory=dict)
    """Names of tokens, and what each may do."""

    write: bool = False
    """Whether dead letters can be requeued and dropped here."""

    every: PositiveDuration = timedelta(seconds=2)
    """How often each source is asked, at most a minute."""

    timeout: PositiveDuration = timedelta(seconds=2)
    """How long a source may take to answer, from 1ms to 1h."""

    history: PositiveDuration = timedelta(hours=6)
    """How far back the console's own samples go, at most 48 hours."""

    behind: PositiveDuration = timedelta(minutes=1)
    """A part whose oldest waiting event is older than this is `behind`."""

    prometheus: Url | None = None
    """A Prometheus that scrapes the parts: the history comes from it."""

    state: Path = Path("dovecote-console")
    """The folder of the log of who did what; a relative path begins where the console starts."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if not (is_loopback(self.http.host) or self.tokens):
            msg = (
                f"http.host {self.http.host} is not loopback: set console.tokens "
                "(`dovecote push token` makes one)"
            )
            raise ValueError(msg)
        for name in self.tokens:
            if not _NAME.fullmatch(name):
                msg = f"tokens: {name!r} is no name for a token: letters, digits, dots, - and _"
                raise ValueError(msg)
        digests = [each.sha256 for each in self.tokens.values()]
        if len(set(digests)) < len(digests):
            msg = "tokens: two names have the same token"
            raise ValueError(msg)
        if self.every > _MOST_EVERY:
            msg = "every: ask at least once a minute, or nothing can be green"
            raise ValueError(msg)
        if not _LEAST_TIMEOUT <= self.timeout <= _MOST_TIMEOUT:
            msg = "timeout: from 1ms to 1h, because Postgres and Kafka take no other"
            raise ValueError(msg)
        if self.history > _MOST_HOURS:
            msg = "history: at most 48h are kept here; name a Prometheus for more"
            raise ValueError(msg)
        return self


class ConsoleSettings(WatchSettings):
    """The file that names the parts, and the table `[console]`."""

    console: ConsoleTable = ConsoleTable()
    """How the console is served, and what may be done with it."""
