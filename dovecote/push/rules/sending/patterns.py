"""
Write the headers of a request from a record whose headers leave nothing to ask.

Most records of a topic have the same headers, with other values. A pattern holds all that the
names decide, as a text with places for the values, and is made once. Most of them differ in the
id and the time alone. A block is the pattern's text with all other values, and is made once, too.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from outbox.envelope import CONTENT_TYPE, DELIVERY, ID, SOURCE, TIME, TRACEPARENT, TYPE

Names = tuple[str, ...]

_MOST_KEPT, _LONGEST_KEPT = 256, 2_000

Values = tuple[bytes | None, ...]


class Unclear(Exception):
    """Only a look at the whole record can say what is sent."""


class Pattern(NamedTuple):
    """Holds all that the names of a record's headers decide."""

    id: int
    """The place of the id among the headers."""
    source: int
    text: str
    """The headers of the request, with a place for each value."""
    values: tuple[int, ...]
    """The places of the values after the id, in their order in the text."""
    content_type: int | None
    """The place of the content type."""
    has_trace: bool
    time: int | None
    """The place of the time."""
    steady: Callable[[Values], Values]
    """
    Returns the values that most records share: those in the text, then the content type.

    So with one text, equal values are those of equal headers, in any order of the record's.
    """


class Block(NamedTuple):
    """The headers of records that differ in nothing but the id and the time."""

    text: str
    """The headers, with a place for the id, and one for the time if there is one."""
    end: str
    """The end of a `webhook-id`."""


def pattern(names: Names, attribute: Callable[[str], str | None], *, most: int) -> Pattern | None:
    """
    Return the pattern of records whose headers have these names.

    `attribute` returns the attribute in a header; `most` is the number of headers that are sent.
    None: only a look at the whole record can say what is sent.
    """
    if not {ID, SOURCE, TYPE}.issubset(names) or not DELIVERY.isdisjoint(names):
        return None
    found = {place: name for place, each in enumerate(names) if (name := attribute(each))}
    if len(set(names)) < len(names) or len(set(found.values())) < len(found):
        return None  # one of two with an equal name counts
    content_type = names.index(CONTENT_TYPE) if CONTENT_TYPE in names else None
    if content_type is None and "datacontenttype" in found.values():
        return None
    places = tuple(place for place in found if place != content_type)
    # The specversion, the id, the content type and the trace's two come too.
    if len(places) + 5 > most:
        return None
    text = "".join(f"ce-{found[place]}: %s\r\n" for place in places)
    time = names.index(TIME) if TIME in names else None
    steady = [place for place in places if place != time]
    if content_type is not None:
        steady.append(content_type)
    return Pattern(
        id=names.index(ID),
        source=names.index(SOURCE),
        text=f"ce-specversion: 1.0\r\nce-id: %s\r\n{text}",
        values=places,
        content_type=content_type,
        has_trace=TRACEPARENT in names,
        time=time,
        # The source and the type are among them: it returns a tuple.
        steady=itemgetter(*steady),
    )


class Patterns:
    """The patterns of the records that came last, in bounded memory."""

    def __init__(self, attribute: Callable[[str], str | None], *, most: int) -> None:
        self._attribute, self._most = attribute, most
        self._kept: dict[Names, Pattern | None] = {}

    def of(self, names: Names) -> Pattern:
        """
        Return the pattern of records whose headers have these names.

        Raises:
            Unclear: there is none.
        """
        found = self._kept.get(names) or self._made(names)
        if found is None:
            raise Unclear
        return found

    def _made(self, names: Names) -> Pattern | None:
        if names in self._kept:
            return None
        found = pattern(names, self._attribute, most=self._most)
        if sum(map(len, names)) <= _LONGEST_KEPT:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[names] = found
        return found


class Blocks:
    """The blocks of the records that came last, in bounded memory."""

    def __init__(self, make: Callable[[Pattern, Values], Block]) -> None:
        """Keep what `make` makes; it raises `Unclear` if there is no block for the values."""
        self._make = make
        self._kept: dict[tuple[str, Values], Block] = {}

    def of(self, found: Pattern, values: Values) -> Block:
        """
        Return the block for a record's values.

        Raises:
            Unclear: there is none.
        """
        known = found.text, found.steady(values)
        return self._kept.get(known) or self._made(known, found, values)

    def _made(self, known: tuple[str, Values], found: Pattern, values: Values) -> Block:
        made = self._make(found, values)
        if sum(len(each) for each in known[1] if each is not None) <= _LONGEST_KEPT:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[known] = made
        return made


def standing(found: Pattern, values: Values, write: Callable[[bytes], str]) -> str:
    """
    Return the headers with all their values but the id and the time, which have places in it.

    Raises:
        Unclear: one has no value.
    """
    written: list[str] = []
    for place in found.values:
        value = values[place]
        if place == found.time:
            written.append("%s")
        elif value is None:
            raise Unclear
        else:
            written.append(write(value).replace("%", "%%"))
    return found.text % ("%s", *written)
