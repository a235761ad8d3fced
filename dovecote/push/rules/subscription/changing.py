"""Decide what a subscription is after single fields of it were set."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from dovecote.push.rules.subscription.fields import MASK, SEALED
from outbox.errors import DovecoteError

_DEEPEST = 10


class NotChangeable(DovecoteError):
    """A field cannot be set like this."""


def changed(spec: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return a stored subscription with fields set, by paths such as `limits.rate`.

    None takes a field out, which then has its default. Secrets stay sealed.

    Raises:
        NotChangeable: a path leads to no field, a value is a secret's mask or a sealed one, the id
            would change, or another server would be sent a secret that is not given anew.
    """
    found: dict[str, Any] = copy.deepcopy(dict(spec))
    for path, value in given.items():
        for text in _texts(value):
            if text.startswith(SEALED) or text == MASK:
                msg = f"{path}: this stands for a secret; leave the field out, or give the secret"
                raise NotChangeable(msg)
        _set(found, path, value)
    if found.get("id") != spec.get("id"):
        msg = "id: it stays; make another subscription, and delete this one"
        raise NotChangeable(msg)
    kept = [text for text in _texts(found.get("endpoint")) if text.startswith(SEALED)]
    if kept and _server(found) != _server(spec):
        msg = (
            "endpoint.url: another server would be sent the secrets of `endpoint`: give them anew "
            "in the same request"
        )
        raise NotChangeable(msg)
    return found


def _set(found: dict[str, Any], path: str, value: object) -> None:
    *folders, name = path.split(".")
    if not name or not all(folders) or len(folders) > _DEEPEST:
        msg = f"{path!r} is no path of a field, such as limits.rate"
        raise NotChangeable(msg)
    at = found
    for folder in folders:
        inner = at.setdefault(folder, {})
        if inner is None:
            inner = at[folder] = {}
        if not isinstance(inner, dict):
            msg = f"{path}: {folder} has no fields of its own; set it as a whole"
            raise NotChangeable(msg)
        at = inner
    if value is None:
        at.pop(name, None)
    else:
        at[name] = value


def _server(spec: Mapping[str, Any]) -> object:
    """Return the scheme, host and port of an endpoint; what can be read as no URL is itself."""
    endpoint = spec.get("endpoint")
    url = endpoint.get("url") if isinstance(endpoint, dict) else None
    try:
        parts = urlsplit(str(url))
        port = parts.port
    except ValueError:
        return url
    return parts.scheme, parts.hostname, port, parts.username, parts.password


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
