"""Print text of others so that it can neither steer a terminal nor forge a line."""

import json
from collections.abc import Iterator, Mapping

# The most characters of a value that are printed; JSON has all of it.
_MOST = 2_000


def text(given: str) -> str:
    """Return text as it is, or in quotes and escaped where a character of it is not printable."""
    # Text that begins like quoted text is quoted too, so that nobody can imitate escaped text.
    plain = given.isprintable() and given[:1] not in {"'", '"'}
    cut = given[:_MOST]
    return (cut if plain else repr(cut)) + _in_all(given.encode(errors="surrogatepass"), cut)


def key(given: bytes | None) -> str:
    """Return a key in quotes; `none` without quotes means that there is no key."""
    return "none" if given is None else quoted(given)


def quoted(given: bytes) -> str:
    """Return bytes as text in quotes, or as hex where they are none."""
    decoded = _decoded(given)
    if decoded is None:
        return _hex(given)
    cut = decoded[:_MOST]
    return repr(cut) + _in_all(given, cut)


def lines(told: Mapping[str, object]) -> Iterator[str]:
    """Give one line for each field."""
    for name, value in told.items():
        yield f"{name:12} {_shown(value)}".rstrip()


def as_json(told: Mapping[str, object]) -> str:
    """Return all of it as one line of JSON; bytes that are no text become `{"hex": "…"}`."""
    return json.dumps(told, default=_carried)


def visible(given: str) -> str:
    r"""Return text of several lines, or JSON, with `\uXXXX` for what steers a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in given)


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bytes():
            decoded = _decoded(value)
            return _hex(value) if decoded is None else text(decoded)
        case list():
            return ", ".join(f"{text(name)}: {key(inner)}" for name, inner in value)
        case _:
            return text(str(value))


def _carried(value: object) -> object:
    if not isinstance(value, bytes):
        msg = f"{type(value).__name__} is not carried"
        raise TypeError(msg)
    decoded = _decoded(value)
    return {"hex": value.hex()} if decoded is None else decoded


def _decoded(given: bytes) -> str | None:
    try:
        return given.decode()
    except UnicodeDecodeError:
        return None


def _hex(given: bytes) -> str:
    return f"hex {given[: _MOST // 2].hex()}" + _in_all(given, given[: _MOST // 2])


def _in_all(given: bytes, cut: str | bytes) -> str:
    size = len(cut if isinstance(cut, bytes) else cut.encode(errors="surrogatepass"))
    return f" … ({len(given):,} bytes in all)" if size < len(given) else ""


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
