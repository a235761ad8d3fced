"""Types for the fields of a subscription: names, durations, headers, secrets."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    SerializationInfo,
    ValidationInfo,
    WithJsonSchema,
)

from dovecote.process.settings.durations import duration, positive

MASK = "********"
"""Stands in answers in place of a secret."""

SEALED = "sealed:"
"""Prefix of a sealed secret in the database."""
_REFERENCE = re.compile(r"(env|file):(.+)", re.DOTALL)


class Model(BaseModel):
    """The base of all parts of a subscription: frozen, and strict about names and types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, allow_inf_nan=False
    )


def _written(value: timedelta) -> str:
    """
    Return "250ms", "60s" or "1h": a text that `duration` reads, in the largest unit that fits.
    """
    milliseconds = round(value / timedelta(milliseconds=1), 3)
    for unit, length in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length:.0f}{unit}"
    return f"{milliseconds:.3f}".rstrip("0").rstrip(".") + "ms"


def _sensible(value: timedelta) -> timedelta:
    if value > timedelta(days=365):
        msg = "must be at most 8760h, a year"
        raise ValueError(msg)
    return value


Wait: TypeAlias = Annotated[
    timedelta,
    BeforeValidator(duration),
    AfterValidator(_sensible),
    PlainSerializer(_written, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,7}(\.\d{1,3})?(ms|s|m|h)$"}),
]
"""A `timedelta`, written "250ms", "60s", "3m" or "2h"."""

Span: TypeAlias = Annotated[Wait, AfterValidator(positive)]
"""A duration that is longer than 0."""

Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""The name of a subscription or a broker: it can be part of a path and of a topic's name."""

Topic: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]


def _charset(value: str) -> str:
    try:
        "".encode(value)  # refuses a codec that does not encode text to bytes, too
    except (LookupError, UnicodeError):
        msg = "is no charset that is known here"
        raise ValueError(msg) from None
    return value


Charset: TypeAlias = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9._:-]{1,40}$"), AfterValidator(_charset)
]

Partition: TypeAlias = Annotated[int, Field(ge=0, le=2**31 - 1)]

Offset: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]

Names: TypeAlias = Annotated[tuple[Topic, ...], Field(strict=False, max_length=1000)]
"""Topics; also accepts a list, as parsed JSON has it."""


def secret(value: object, info: ValidationInfo) -> object:
    """
    Return the secret that `value` seals or refers to, if the context says how; otherwise `value`.
    """
    context = info.context or {}
    unseal: Callable[[str], str] | None = context.get("unseal")
    if unseal is not None and isinstance(value, str) and value.startswith(SEALED):
        return unseal(value.removeprefix(SEALED))
    resolve: Callable[[str], str] | None = context.get("resolve")
    if resolve is not None and isinstance(value, str):
        return resolve(value)
    if value == MASK:
        msg = f"{MASK} stands for a secret in an answer; give the secret itself"
        raise ValueError(msg)
    return value


def _shown(value: SecretStr, info: SerializationInfo) -> str:
    # A secret is never written out unless the caller asks for it explicitly.
    seal: Callable[[str], str] | None = (info.context or {}).get("seal")
    text = value.get_secret_value()
    if reference(value) is not None:
        return text
    return MASK if seal is None else SEALED + seal(text)


Secret: TypeAlias = Annotated[
    SecretStr,
    BeforeValidator(secret),
    PlainSerializer(_shown, return_type=str),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 4096}),
]
"""
A secret, or a reference to it: `env:NAME` or `file:NAME`.

Its JSON is masked, unless it is a reference; the store seals it (`context["seal"]`).
"""


def reference(value: SecretStr) -> tuple[Literal["env", "file"], str] | None:
    """Return where a secret is, if the value is a reference."""
    found = _REFERENCE.fullmatch(value.get_secret_value())
    return None if found is None else (found[1], found[2])  # type: ignore[return-value]  # as the expression says


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}")
# These belong to the connection, or contain what only the request itself can know.
_OURS = re.compile(
    r"(connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding"
    r"|upgrade|webhook-.*|qoh-.*|ce-.*)",
    re.IGNORECASE,
)
# Headers that everybody may see; any other may hold a token.
_PLAIN = frozenset(
    {"accept", "accept-language", "cache-control", "content-language", "content-type"}
)


def _headers(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, text in value.items():
        if not _TOKEN.fullmatch(name):
            msg = "holds a name that is not one of an HTTP header"
            raise ValueError(msg)
        if _OURS.fullmatch(name):
            msg = f"{name} cannot be set: it is part of how a request is sent"
            raise ValueError(msg)
        if not _VALUE.fullmatch(text.get_secret_value()):
            msg = f"{name}: not a value that a header can hold"
            raise ValueError(msg)
    if len({name.lower() for name in value}) != len(value):
        msg = "holds a header twice"
        raise ValueError(msg)
    return value


def _shown_headers(value: dict[str, SecretStr], info: SerializationInfo) -> dict[str, str]:
    return {name: _shown_header(name, text, info) for name, text in value.items()}


def _shown_header(name: str, value: SecretStr, info: SerializationInfo) -> str:
    text = value.get_secret_value()
    return text if is_plain(name) and not text.startswith(SEALED) else _shown(value, info)


def is_plain(name: str) -> bool:
    """Return whether everybody may see the value of a header with this name."""
    return name.lower() in _PLAIN


def _read_headers(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401  # whatever came
    if not isinstance(value, dict):
        return value
    return {name: secret(each, info) for name, each in value.items()}


Headers: TypeAlias = Annotated[
    dict[str, SecretStr],
    BeforeValidator(_read_headers),
    AfterValidator(_headers),
    PlainSerializer(_shown_headers, return_type=dict[str, str]),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": 50,
            "additionalProperties": {"type": "string", "maxLength": 4096},
        }
    ),
    Field(max_length=50),
]
"""HTTP headers; the values of all but a few may be tokens, so they are secrets."""
