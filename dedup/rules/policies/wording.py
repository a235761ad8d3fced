"""Put what others wrote into words that every log, header and table can hold."""

MOST = 2_000
"""Most characters that are kept."""


def plain(text: object) -> str:
    r"""
    Return `text` on one line, cut to `MOST` characters, as text that UTF-8 can hold.

    Characters that cannot be shown (line ends, NUL, lone surrogates) become escapes: `\n`.
    """
    if not isinstance(text, str):
        text = str_of(text)
    text = text[:MOST]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)[:MOST]


def str_of(value: object) -> str:
    """Return `str(value)`, or words for a value whose own text raises."""
    try:
        text = str(value)
    except BaseException as error:  # noqa: BLE001  # the text of a failure must not be another one
        return f"its text cannot be told: __str__ raised {type(error).__name__}"
    # A subclass may have methods of its own.
    return text if type(text) is str else str.__str__(text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
