"""Statements of what was compared, each with the hash of the one before."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

BEGINNING = "0" * 64
"""The hash before the first statement."""


def sealed(told: Mapping[str, Any], previous: str) -> dict[str, Any]:
    """Return a statement with the hash of the one before, and its own."""
    whole = {**told, "previous": previous}
    return {**whole, "hash": _hash(whole)}


def hash_of(line: str) -> str | None:
    """Return the hash that the statement in a line gives itself; None: it has none."""
    try:
        told = json.loads(line)["hash"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return told if isinstance(told, str) else None


def first_broken(lines: Iterable[str]) -> str | None:
    """Return what is wrong with a file of statements; None: each fits the one before."""
    previous: str | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            own, before = told.pop("hash"), told["previous"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return f"line {number} is not a statement"
        if _hash(told) != own:
            return f"the statement in line {number} was altered"
        if previous is not None and before != previous:
            return f"a statement before line {number} is missing, or was put in another place"
        previous = own
    return None


def _hash(told: Mapping[str, Any]) -> str:
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode()).hexdigest()
