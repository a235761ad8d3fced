"""What the fields of a subscription are made of: names, durations, headers, secrets."""

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

from dovecote.process.durations import duration

MASK = "********"
"""What stands in an answer in the place of a secret."""

SEALED = "sealed:"
"""What a secret begins with in the database."""
_REFERENCE = re.compile(r"(env|file):(.+)", re.DOTALL)


class Model(BaseModel):
    """The base of all that describes a subscription: frozen, and strict about names and types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, allow_inf_nan=False
    )


def _written(value: timedelta) -> str:
    """Return "250ms", "60s" or "1h": what `duration` reads, in the largest unit that fits."""
    milliseconds = round(value / timedelta(milliseconds=1), 3)
    for unit, length in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length:.0f}{unit}"
    return f"{milliseconds:.3f}".rstrip("0").rstrip(".") + "ms"


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        msg = "must be longer than 0"
        raise ValueError(msg)
    return value


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

Span: TypeAlias = Annotated[Wait, AfterValidator(_positive)]
"""A duration that is longer than 0."""

Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""What a subscription or a broker is called: it may stand in a path and in a topic's name."""

Topic: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]


def _charset(value: str) -> str:
    try:
        "".encode(value)  # what makes anything else than bytes of text is refused, too
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
"""Topics; a list where it comes from JSON that Python has read."""


def secret(value: object, info: ValidationInfo) -> object:
    """Return what was sealed, or is referred to, where the context says how; else `value`."""
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


def _told(value: SecretStr, info: SerializationInfo) -> str:
    # Unless somebody asks for more, and says so, a secret is never written out.
    seal: Callable[[str], str] | None = (info.context or {}).get("seal")
    text = value.get_secret_value()
    if reference(value) is not None:
        return text
    return MASK if seal is None else SEALED + seal(text)


Secret: TypeAlias = Annotated[
    SecretStr,
    BeforeValidator(secret),
    PlainSerializer(_told, return_type=str),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 4096}),
]
"""
A secret, or where it is: `env:NAME` or `file:NAME`.

Written out it is masked, unless it is a reference; the store seals it (`context["seal"]`).
"""


def reference(value: SecretStr) -> tuple[Literal["env", "file"], str] | None:
    """Return where a secret is, if it only says so."""
    found = _REFERENCE.fullmatch(value.get_secret_value())
    return None if found is None else (found[1], found[2])  # type: ignore[return-value]  # as the expression says


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}")
# They belong to the connection, or say what only the request itself can know.
_OURS = re.compile(
    r"(connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding"
    r"|upgrade|webhook-.*|qoh-.*|ce-.*)",
    re.IGNORECASE,
)
# What everybody may see of a request; anything else may be a token.
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


def _told_headers(value: dict[str, SecretStr], info: SerializationInfo) -> dict[str, str]:
    return {name: _told_header(name, text, info) for name, text in value.items()}


def _told_header(name: str, value: SecretStr, info: SerializationInfo) -> str:
    text = value.get_secret_value()
    return text if is_plain(name) and not text.startswith(SEALED) else _told(value, info)


def is_plain(name: str) -> bool:
    """Tell whether everybody may see what a header of this name says."""
    return name.lower() in _PLAIN


def _read_headers(value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401  # whatever came
    if not isinstance(value, dict):
        return value
    return {name: secret(each, info) for name, each in value.items()}


Headers: TypeAlias = Annotated[
    dict[str, SecretStr],
    BeforeValidator(_read_headers),
    AfterValidator(_headers),
    PlainSerializer(_told_headers, return_type=dict[str, str]),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": 50,
            "additionalProperties": {"type": "string", "maxLength": 4096},
        }
    ),
    Field(max_length=50),
]
"""HTTP headers; the values of all but a few may be tokens, and are secrets."""
