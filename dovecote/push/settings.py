"""Settings of `dovecote push serve`."""

import re
from collections.abc import Mapping
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from dovecote.process import strict_json
from dovecote.process.http.hosts import is_loopback
from dovecote.process.settings.models import Settings
from dovecote.process.settings.references import POINTERS, is_pointer
from dovecote.process.settings.values import (
    Dsn,
    HostName,
    KafkaTable,
    OrText,
    PositiveDuration,
    pointed,
)
from dovecote.push.rules.access.scope import (
    EVERY,
    RIGHTS,
    Right,
    Scope,
    overlap,
    wrong_entry,
    wrong_url,
)
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.store.schema import DEFAULT_SCHEMA

PREFIX = "DOVECOTE_PUSH"

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _properties(value: object) -> object:
    """Return Kafka properties with dots in their names, which variables cannot have."""
    if not isinstance(value, Mapping):
        return value
    return {(k.replace("_", ".") if is_pointer(v) else k): v for k, v in value.items()}


Broker: TypeAlias = Annotated[KafkaTable, BeforeValidator(_properties)]


def _text(value: object, info: ValidationInfo) -> object:
    return pointed(value, info)


Pointed: TypeAlias = Annotated[str, BeforeValidator(_text)]
"""Text, or a pointer to it, as `dovecote.process.settings.references` reads them."""


def _hidden(value: object, info: ValidationInfo) -> object:
    if value and not is_pointer(value):
        msg = f"is a secret: write {POINTERS} in its place"
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


class TokenSettings(Settings):
    """
    The rights of one token, and the names and endpoints that its subscriptions may use.

    An entry of a list is a name, or the beginning of names and `*`; an empty list allows nothing.
    """

    sha256: Pointed
    """`sha256:…` of the token; `dovecote push token` makes both."""

    rights: tuple[Right, ...] = ("read",)
    """
    `read`: look. `write`: make, replace and delete. `operate`: pause, resume and replay, requeue
    and drop dead letters, and read the audit log.
    """

    subscriptions: Literal["own", "all"] = "own"
    """The subscriptions that exist for it: those of its owner, or all."""

    owner: str = ""
    """
    The owner of the subscriptions that it makes. Default: its name. Tokens may share an owner.
    """

    ids: tuple[str, ...] | None = None
    """
    Ids that new subscriptions may have. Default: `<owner>.*`. Tokens of different owners that see
    only their own cannot share an id.
    """

    brokers: tuple[str, ...] = ("default",)
    """Brokers that its subscriptions may read from."""

    topics: tuple[str, ...] = ()
    """Topics that its subscriptions may read; also what a `pattern` takes in."""

    groups: tuple[str, ...] = ()
    """Consumer groups that its subscriptions may use, besides `dovecote.push.<id>`."""

    dead_letter_topics: tuple[str, ...] = ()
    """Topics that its dead letters may go to, besides `dovecote.push.<id>.dead`."""

    secrets: tuple[str, ...] = ()
    """Secrets that its subscriptions may refer to, such as `env:SHOP_*` and `file:shop`."""

    endpoints: tuple[str, ...] = ()
    """
    Where its requests may go: `https://hooks.example/shop` is that path and all below it,
    `https://*.shop.example` every host of the domain, `*` everywhere.
    """

    max_subscriptions: int | None = Field(default=100, ge=0, le=100_000)
    """Most subscriptions of its owner: each takes threads and a Kafka client."""

    @model_validator(mode="before")
    @classmethod
    def _told(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, str) or is_pointer(value):
            # The simple form: the token of an operator.
            every = {**dict.fromkeys(_LISTS, EVERY), "max_subscriptions": None}
            return {"sha256": value, "rights": RIGHTS, "subscriptions": "all", **every}
        if not isinstance(value, Mapping):
            return value
        return {name: _from_variable(each, info) for name, each in value.items()}

    @field_validator("sha256")
    @classmethod
    def _hashed(cls, value: str) -> str:
        if not _HASH.fullmatch(value):
            msg = "write sha256: and 64 hexadecimal digits, as `dovecote push token` does"
            raise ValueError(msg)
        return value

    @field_validator("owner")
    @classmethod
    def _named(cls, value: str) -> str:
        if value and not _NAME.fullmatch(value):
            msg = f"{value!r} is no name for an owner: letters, digits, dots, - and _"
            raise ValueError(msg)
        return value

    @field_validator(
        "ids", "brokers", "topics", "groups", "dead_letter_topics", "secrets", "endpoints"
    )
    @classmethod
    def _entries(
        cls, value: tuple[str, ...] | None, info: ValidationInfo
    ) -> tuple[str, ...] | None:
        is_wrong = wrong_url if info.field_name == "endpoints" else wrong_entry
        for each in value or ():
            if why := is_wrong(each):
                msg = f"{each!r} {why}"
                raise ValueError(msg)
        return value

    def scope(self, name: str) -> Scope:
        """Return what the token may do, if it is called `name`."""
        owner = self.owner or name
        return Scope(
            name=name,
            owner=owner,
            rights=frozenset(self.rights),
            sees_all=self.subscriptions == "all",
            ids=(f"{owner}.*",) if self.ids is None else self.ids,
            brokers=self.brokers,
            topics=self.topics,
            groups=self.groups,
            dead_letter_topics=self.dead_letter_topics,
            secrets=self.secrets,
            endpoints=self.endpoints,
            most=self.max_subscriptions,
        )


_LISTS = ("ids", "brokers", "topics", "groups", "dead_letter_topics", "secrets", "endpoints")


def _from_variable(value: object, info: ValidationInfo) -> object:
    """Return the target of a pointer, as a list if it is one in JSON."""
    found = pointed(value, info)
    if found is not value and isinstance(found, str) and found.startswith("["):
        try:
            return strict_json.loads(found)
        except ValueError:
            return found
    return found


class ApiSettings(Settings):
    """Access to the API."""

    tokens: dict[str, Annotated[TokenSettings, OrText()]] = Field(default_factory=dict)
    """
    Names of tokens, and what each may do. `sha256:…` in place of a table is the token of an
    operator, who may do everything.
    """

    audit_entries: int = Field(default=5_000, ge=100, le=1_000_000)
    """Last entries of the audit log that are kept of each token, and as many refused ones."""

    token_file: Path | None = None
    """
    Without `tokens`: the file of the only token, which the first start makes and which nobody but
    its user can read. By default `dovecote/push-token` in the user's XDG_STATE_HOME.
    """

    max_body: int = Field(default=256_000, ge=1_000, le=16_000_000)
    """Most bytes of a request's body."""

    @field_validator("tokens")
    @classmethod
    def _apart(cls, value: dict[str, TokenSettings]) -> dict[str, TokenSettings]:
        for name in value:
            if not _NAME.fullmatch(name):
                msg = f"{name!r} is no name for a token: letters, digits, dots, - and _"
                raise ValueError(msg)
        limited = [each for name, told in value.items() if not (each := told.scope(name)).sees_all]
        for one, other in combinations(limited, 2):
            if one.owner != other.owner and (entry := overlap(one.ids, other.ids)) is not None:
                msg = (
                    f"{one.name} and {other.name} have different owners, and may use the same ids "
                    f"({entry}): each would learn what the other one has; set `ids` apart, or "
                    "the same `owner`"
                )
                raise ValueError(msg)
        digests = [each.sha256 for each in value.values()]
        if len(set(digests)) < len(digests):
            msg = "two names have the same token"
            raise ValueError(msg)
        return value

    def scopes(self) -> list[tuple[str, Scope]]:
        """Return the hash of each token, and what it may do."""
        return [(told.sha256, told.scope(name)) for name, told in self.tokens.items()]

    def owned_ids(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the owners of tokens that see only their own, and the ids of each."""
        scopes = [scope for _, scope in self.scopes() if not scope.sees_all]
        return [(scope.owner, tuple(scope.ids)) for scope in scopes]


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

    processes: int = Field(default=1, ge=1, le=256)
    """Processes under this one that share the work, for more cores."""

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

    def of_process(self) -> Self:
        """Return the settings of one of several processes, which answers its parent alone."""
        own = {"host": "127.0.0.1", "port": 0, "hosts": ()}
        return self.model_copy(update={"http": self.http.model_copy(update=own)})
