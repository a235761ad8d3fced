"""The table `[kafka.identity]`: which provider a client of Kafka has its tokens from."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias

from outbox.tokens.token import Ask, extensions_problem

KEY = "identity"
"""The table's name among the properties of a Kafka client."""

GROUP = "dovecote.token_providers"
"""
The entry points of other providers: functions that get the table, and return a function that
returns a `Token`.
"""

Options: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A provider that comes with Dovecote, and its settings."""

    place: str
    needed: tuple[str, ...]
    others: tuple[str, ...] = ()
    extra: str = ""
    """The extra that has its library."""


KINDS: Mapping[str, Kind] = {
    "oidc": Kind(
        "outbox.tokens.oidc:oidc",
        ("token_url", "client_id", "client_secret"),
        ("scope", "auth", "parameters", "ca_file"),
    ),
    "aws-msk": Kind(
        "outbox.tokens.clouds:aws_msk",
        ("region",),
        ("role_arn", "session_name", "profile"),
        extra="aws",
    ),
    "azure": Kind(
        "outbox.tokens.clouds:azure",
        ("scope",),
        ("credential", "tenant_id", "client_id", "client_secret", "authority"),
        extra="azure",
    ),
    "google": Kind(
        "outbox.tokens.clouds:google", (), ("credentials_file", "principal"), extra="google"
    ),
}
"""The providers that come with Dovecote, by the names that `provider` takes."""

_TABLES = frozenset({"parameters", "extensions"})
MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
"""Both names of one property."""

_NOT_WITH = ("sasl.username", "sasl.password", "sasl.oauthbearer.", "enable.sasl.oauthbearer.")
_PROTOCOLS = frozenset({"sasl_ssl", "sasl_plaintext"})


def encoded(table: Options) -> str:
    """
    Return the table as the property of a Kafka client: a text, which can travel.

    Raises:
        ValueError: the provider cannot work with it, or is not installed; the message names it.
    """
    lists = {n: " ".join(map(str, v)) for n, v in table.items() if isinstance(v, list | tuple)}
    text = json.dumps({**table, **lists}, sort_keys=True)
    made(text)
    return text


def made(text: str) -> Ask:
    """
    Return the provider for an encoded table.

    Raises:
        ValueError: as `encoded`.
    """
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        msg = "it must be a table, with a provider"
        raise ValueError(msg)  # noqa: TRY004  # it is reported as a setting
    name = options.pop("provider", None)
    if not isinstance(name, str) or not name:
        msg = f'"provider" is missing: {_known()}'
        raise ValueError(msg)
    if "extensions" in options and (problem := extensions_problem(options["extensions"])):
        raise ValueError(problem)
    if (kind := KINDS.get(name)) is not None:
        _require(name, kind, options)
        return _provider(name, _factory(kind.place), options, kind.extra)
    found = [each for each in entry_points(group=GROUP) if each.name == name]
    if not found:
        msg = f"there is no provider {name!r}: {_known()}"
        raise ValueError(msg)
    return _provider(name, _loaded(found[0]), options, "")


def described(text: str) -> str:
    """Return which provider a table names, for the log: without a secret."""
    options = json.loads(text)
    name = options.get("provider", "")
    shown = [options[each] for each in ("token_url", "region") if options.get(each)]
    return " ".join([name, *map(str, shown)])


def secrets_of(text: str) -> list[str]:
    """Return the texts of a table that no message may show."""
    marks = ("secret", "password", "passphrase", "assertion", "token", "key")
    options = json.loads(text)
    return [
        value
        for name, value in options.items()
        if name.rpartition("_")[2] in marks and isinstance(value, str) and value
    ]


def require_fit(properties: Mapping[str, str]) -> None:
    """
    Check that the properties of a client and its identity go together.

    Raises:
        ValueError: they do not; the message says which one to leave out.
    """
    mechanism = next((properties[each] for each in MECHANISM if each in properties), "")
    is_bearer = mechanism.upper() == "OAUTHBEARER"
    if KEY not in properties:
        own = properties.get("sasl.oauthbearer.method", "").lower() == "oidc"
        own = own or properties.get("enable.sasl.oauthbearer.unsecure.jwt", "") == "true"
        kind = properties.get("sasl.oauthbearer.metadata.authentication.type", "")
        if is_bearer and (not own or kind == "aws_iam"):
            msg = "OAUTHBEARER needs tokens: add a table [kafka.identity]; see docs/identities.md"
            raise ValueError(msg)
        return
    if mechanism and not is_bearer:
        msg = f"{KEY} goes with sasl.mechanism OAUTHBEARER, and not with {mechanism}: leave it out"
        raise ValueError(msg)
    if wrong := [each for each in properties if each.startswith(_NOT_WITH)]:
        msg = f"{', '.join(sorted(wrong))}: {KEY} takes the place of it, leave it out"
        raise ValueError(msg)
    protocol = properties.get("security.protocol", "sasl_ssl").lower()
    if protocol not in _PROTOCOLS:
        msg = f"security.protocol {protocol} sends no token: {KEY} needs SASL_SSL"
        raise ValueError(msg)


def _require(name: str, kind: Kind, options: Options) -> None:
    if lacking := [each for each in kind.needed if not options.get(each)]:
        msg = f"missing for the provider {name}: {', '.join(lacking)}"
        raise ValueError(msg)
    if unknown := sorted(options.keys() - {*kind.needed, *kind.others, "extensions"}):
        takes = ", ".join((*kind.needed, *kind.others, "extensions"))
        msg = f"{', '.join(unknown)}: there is no such setting of the provider {name}: {takes}"
        raise ValueError(msg)
    for setting, value in options.items():
        wanted = Mapping if setting in _TABLES else str
        if not isinstance(value, wanted):
            words = "a table" if wanted is Mapping else "text"
            msg = f"{setting} must be {words}"
            raise ValueError(msg)  # noqa: TRY004  # it is reported as a setting
    for setting, value in options.get("parameters", {}).items():
        if not isinstance(value, str):
            msg = f"parameters.{setting} must be text"
            raise ValueError(msg)  # noqa: TRY004  # as above


def _provider(name: str, factory: Callable[[Options], Any], options: Options, extra: str) -> Ask:
    try:
        ask = factory(options)
    except ModuleNotFoundError as error:
        if not extra:
            msg = f"the provider {name} cannot be loaded: {error}"
        else:
            msg = f"the provider {name} needs {error.name}: pip install 'dovecote[{extra}]'"
        raise ValueError(msg) from None
    except (KeyError, TypeError) as error:
        # Most likely a setting that a provider of somebody else needs and does not check for.
        msg = f"the provider {name} does not take these settings: {type(error).__name__}: {error}"
        raise ValueError(msg) from None
    if not callable(ask):
        msg = f"the provider {name} returns no function that returns a token"
        raise ValueError(msg)  # noqa: TRY004  # it is reported as a setting
    return ask  # type: ignore[no-any-return]  # an entry point's


def _factory(place: str) -> Callable[[Options], Any]:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]  # one of `KINDS`


def _loaded(point: EntryPoint) -> Callable[[Options], Any]:
    try:
        return point.load()  # type: ignore[no-any-return]  # somebody else's
    except (ImportError, AttributeError) as error:
        msg = f"the provider {point.name} cannot be loaded from {point.value}: {error}"
        raise ValueError(msg) from None


def _known() -> str:
    others = sorted({each.name for each in entry_points(group=GROUP)} - KINDS.keys())
    named = ", ".join([*KINDS, *others])
    return f"{named}, or one that a package declares as an entry point of {GROUP}"
