"""
Mask secrets in an endpoint's answers: some endpoints echo the request.

A secret is masked in every spelling that an echo may have: as it is, with escapes of JSON, URLs or
HTML for any of its characters, as base64 or hex, and as what its own base64 stands for.
"""

import html
import json
import re
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import quote, quote_plus

from dovecote.push.rules.subscription.fields import MASK

_SHORTEST = 6
"""Shorter words occur in any text, so masking them hides nothing."""
_LONGEST = 512
"""The longest word that is masked in every spelling; of a longer one, the usual ones are."""
_ESCAPE = 16
"""About the most characters of an escape; one may be cut off at the end of a text."""
_ESCAPES = re.compile(r"[\\%&+]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_PREFIX = "whsec_"


class Hide(Protocol):
    """Masks secrets; if a cut text ends within a secret, masks that beginning too."""

    def __call__(self, text: str, /, *, cut: bool = False) -> str: ...


class _Spelled(NamedTuple):
    """A word, with the pattern of each of its characters in any spelling."""

    characters: tuple[re.Pattern[str], ...]
    whole: re.Pattern[str]


def hiding(secrets: Iterable[str]) -> Hide:
    """
    Return a function that masks these secrets, and the words in them.

    It does not mask the first word of a secret: `Bearer` is not secret.
    """
    words = {word for text in secrets for word in (text, *text.split()[1:])}
    words |= {word.removeprefix(_PREFIX) for word in words}
    words |= {part for word in words for part in _meant(word)}
    words = {word for word in words if len(word) >= _SHORTEST}
    found = [_spelled(word) for word in _longest_first(words) if len(word) <= _LONGEST]
    words |= {each for word in words for each in _encoded(word) if len(each) >= _SHORTEST}
    usual = _longest_first(each for word in words for each in _usual(word))

    def hide(text: str, /, *, cut: bool = False) -> str:
        for each in usual:
            text = text.replace(each, MASK)
        if _ESCAPES.search(text):  # most answers have none, and need no closer look
            for spelled in found:
                text = spelled.whole.sub(MASK, text)
        if cut:
            most = max(
                (
                    *(_begun(text, each) for each in usual),
                    *(_begun_spelled(text, each) for each in found),
                ),
                default=0,
            )
            text = text[: len(text) - most] + (MASK if most else "")
        return text

    return hide


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted({*words}, key=lambda each: (-len(each), each))


def _usual(word: str) -> Iterator[str]:
    in_json = json.dumps(word)[1:-1]
    yield from (word, html.escape(word), in_json, in_json.replace("/", "\\/"))
    yield from (quote(word, safe=""), quote_plus(word))


def _meant(word: str) -> Iterator[str]:
    """Yield what a word in base64 stands for, and its parts: `user:password`."""
    if _BASE64.fullmatch(word):
        try:
            decode = urlsafe_b64decode if {"-", "_"} & {*word} else b64decode
            text = decode(word + "=" * (-len(word) % 4)).decode()
        except ValueError:
            return  # it is no text
        if text.isprintable():
            yield from (text, text.partition(":")[2])


def _encoded(word: str) -> Iterator[str]:
    """Yield a word in hex, and in base64 at any place of what is encoded."""
    data = word.encode(errors="surrogatepass")
    yield from (data.hex(), data.hex().upper())
    for before in range(3):
        # The characters that neighbours have a share in are left out.
        whole = b64encode(b"\0" * before + data).decode().rstrip("=")
        inner = whole[(0, 2, 3)[before] : None if (before + len(data)) % 3 == 0 else -1]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))


def _spelled(word: str) -> _Spelled:
    characters = [_character(each) for each in word]
    return _Spelled(
        tuple(re.compile(each) for each in characters), re.compile("".join(characters))
    )


@lru_cache(maxsize=1024)
def _character(character: str) -> str:
    """
    Return the pattern of a character in any spelling.

    It is atomic, so a text costs no more than its length for each place where it may begin.
    """
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\+u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    octets = character.encode(errors="surrogatepass").hex()
    in_url = "".join(f"%(?:25)*(?i:{octets[at : at + 2]})" for at in range(0, len(octets), 2))
    number = ord(character)
    entity = rf"&(?:amp;)*\#(?:[xX]0*(?i:{number:x})|0*{number});"
    named = html.escape(character).removeprefix("&")
    spellings = [escaped, in_url, entity]
    if named != character:
        spellings.append(f"&(?:amp;)*{re.escape(named)}")
    if not character.isalnum():
        spellings.append(rf"\\+{re.escape(character)}")
    if character == " ":
        spellings.append(r"\+")
    return f"(?>{'|'.join([*spellings, re.escape(character)])})"


def _begun(text: str, secret: str) -> int:
    """Return how many characters of a secret `text` ends with."""
    sizes = range(min(len(secret), len(text)), _SHORTEST - 1, -1)
    return next((size for size in sizes if text.endswith(secret[:size])), 0)


def _begun_spelled(text: str, secret: _Spelled) -> int:
    """Return how many characters at the end of `text` are the beginning of a secret."""
    first = secret.characters[0]
    for start in range(max(0, len(text) - _ESCAPE * len(secret.characters)), len(text)):
        if first.match(text, start) and _leads_to_the_end(text, start, secret):
            return len(text) - start
    return 0


def _leads_to_the_end(text: str, at: int, secret: _Spelled) -> bool:
    for count, character in enumerate(secret.characters):
        found = character.match(text, at)
        if found is None or at >= len(text):
            rest = text[at:]
            is_cut = not rest or (len(rest) < _ESCAPE and rest[0] in "\\%&")
            return is_cut and count >= _SHORTEST
        at = found.end()
    return False
