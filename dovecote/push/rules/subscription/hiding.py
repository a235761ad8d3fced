"""Mask secrets in an endpoint's answers: some endpoints echo the request."""

import html
import json
from collections.abc import Iterable
from typing import Protocol
from urllib.parse import quote

from dovecote.push.rules.subscription.fields import MASK

_SHORTEST = 6
"""Shorter words occur in any text, so masking them hides nothing."""


class Hide(Protocol):
    """Masks secrets; if a cut text ends within a secret, masks that beginning too."""

    def __call__(self, text: str, /, *, cut: bool = False) -> str: ...


def hiding(secrets: Iterable[str]) -> Hide:
    """
    Return a function that masks these secrets, and the words in them.

    It does not mask the first word of a secret: `Bearer` is not secret.
    """
    words = {word for text in secrets for word in (text, *text.split()[1:])}
    found = {word for word in words if len(word) >= _SHORTEST}
    spelled = {
        each
        for word in found
        for each in (word, html.escape(word), json.dumps(word)[1:-1], quote(word, safe=""))
    }
    longest_first = sorted(spelled, key=lambda each: (-len(each), each))

    def hide(text: str, /, *, cut: bool = False) -> str:
        for each in longest_first:
            text = text.replace(each, MASK)
        if cut:
            most = max((_begun(text, each) for each in longest_first), default=0)
            text = text[: len(text) - most] + (MASK if most else "")
        return text

    return hide


def _begun(text: str, secret: str) -> int:
    """Return how many characters of a secret `text` ends with."""
    sizes = range(min(len(secret), len(text)), _SHORTEST - 1, -1)
    return next((size for size in sizes if text.endswith(secret[:size])), 0)
