"""Settings of `dovecote push serve`."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from dovecote.process.http.hosts import is_loopback
from dovecote.process.settings import (
    Dsn,
    HostName,
    KafkaTable,
    PositiveDuration,
    Settings,
    pointed,
)
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.store.schema import DEFAULT_SCHEMA

PREFIX = "DOVECOTE_PUSH"

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _is_pointer(value: object) -> bool:
    return isinstance(value, Mapping) and len(value) == 1 and set(value) <= {"env", "file"}


def _properties(value: object) -> object:
    """Return Kafka properties with dots in their names, which variables cannot have."""
    if not isinstance(value, Mapping):
        return value
    return {(k.replace("_", ".") if _is_pointer(v) else k): v for k, v in value.items()}


Broker: TypeAlias = Annotated[KafkaTable, BeforeValidator(_properties)]


def _text(value: object, info: ValidationInfo) -> object:
    return pointed(value, info)


Pointed: TypeAlias = Annotated[str, BeforeValidator(_text)]
"""Text, or a pointer to it: `{ env = "NAME" }` or `{ file = "PATH" }`."""


def _hidden(value: object, info: ValidationInfo) -> object:
    if value and not _is_pointer(value):
        msg = 'is a secret: write { env = "NAME" } or { file = "PATH" } in its place'
        raise ValueError(msg)
    return pointed(value, info)


class PushHttpSettings(Settings):
    """Where to serve the API, the page, /metrics, /healthz and /readyz."""

    host: str = "127.0.0.1"
    """Address to listen on; any but loopback needs `api.tokens` or `api.token_file`."""

    port: int = Field(default=8080, ge=0, le=65535)
    """Port; 0: any free one (it is logged)."""

    hosts: tuple[HostName, ...] = ()
    """
    Names under which requests may ask for it, such as a TLS proxy's; `localhost`, `host` and,
    unless that is loopback, any address and the machine's own name always count.
    """


class ApiSettings(Settings):
    """Access to the API."""

    tokens: dict[str, Pointed] = Field(default_factory=dict)
    """Names of users, and `sha256:…` of the token of each; `dovecote push token` makes both."""

    token_file: Path | None = None
    """
    Without `tokens`: the file of the only token, which the first start makes and which nobody but
    its user can read. By default `dovecote/push-token` in the user's XDG_STATE_HOME.
    """

    max_body: int = Field(default=256_000, ge=1_000, le=16_000_000)
    """Most bytes of a request's body."""

    @field_validator("tokens")
    @classmethod
    def _hashed(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _HASH.fullmatch(text):
                msg = f"{name}: write sha256: and 64 hexadecimal digits, as `dovecote push token`"
                raise ValueError(msg)
        return value


class SecretSettings(Settings):
    """Where the secrets of subscriptions are stored."""

    keys: Annotated[str, BeforeValidator(_hidden)] = Field(default="", repr=False)
    """
    Keys that seal secrets in the database, newest first, separated by spaces; `dovecote push key`
    makes one. None: secrets can only be given by reference.
    """

    environment: str = "PUSH_SECRET_"
    """`env:NAME` in a subscription is the variable with this prefix and NAME."""

    directory: Path | None = None
    """`file:NAME` in a subscription is the file NAME in this directory."""

    @field_validator("environment")
    @classmethod
    def _not_everything(cls, value: str) -> str:
        if not value:
            msg = "must not be empty: subscribers could read every variable of this process"
            raise ValueError(msg)
        return value


class PushSettings(Settings):
    """One process that pushes; processes with the same database and brokers share the work."""

    dsn: Dsn
    """The database: a libpq connection string or a table of libpq parameters (TLS and all)."""

    brokers: dict[str, Broker] = Field(min_length=1, repr=False)
    """
    Kafka clusters, by the names that subscriptions use: any librdkafka property;
    `bootstrap.servers` at least.
    """

    schema_name: str = Field(default=DEFAULT_SCHEMA, alias="schema")
    """The Postgres schema of the subscriptions."""

    allow_addresses: tuple[str, ...] = ()
    """Networks that requests may go to although they are not public, such as `10.0.0.0/8`."""

    ca_file: str | None = None
    """Certificate authorities to trust in addition to the system's."""

    origin: str = "dovecote"
    """Our name in the handshake of CloudEvents webhooks."""

    poll: PositiveDuration = timedelta(seconds=1)
    """How often to look for changes, in addition to notifications."""

    http: PushHttpSettings = PushHttpSettings()

    api: ApiSettings = ApiSettings()

    secrets: SecretSettings = SecretSettings()

    @field_validator("brokers")
    @classmethod
    def _reachable(cls, value: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for name, properties in value.items():
            if not _NAME.fullmatch(name):
                msg = f"{name!r} is no name for a broker: letters, digits, dots, - and _"
                raise ValueError(msg)
            if "bootstrap.servers" not in properties:
                msg = f'{name}: "bootstrap.servers" is missing'
                raise ValueError(msg)
        return value

    @field_validator("allow_addresses")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            try:
                networks([text])
            except ValueError as error:
                msg = f"{error}: write a network, such as 10.0.0.0/8"
                raise ValueError(msg) from None
        return value

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if self.api.tokens and self.api.token_file is not None:
            msg = "api.token_file is used without api.tokens only: set one of the two"
            raise ValueError(msg)
        if not (is_loopback(self.http.host) or self.api.tokens or self.api.token_file):
            msg = (
                f"http.host {self.http.host} is not loopback: set api.tokens "
                "(`dovecote push token` makes one), or api.token_file"
            )
            raise ValueError(msg)
        return self
