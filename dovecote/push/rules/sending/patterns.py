"""
Write the headers of a request from a record whose headers leave nothing to ask.

Most records of a topic have the same headers, with other values. A pattern holds all that the
names decide, as a text with places for the values, and is made once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from outbox.envelope import CONTENT_TYPE, DELIVERY, ID, SOURCE, TRACEPARENT, TYPE

Names = tuple[str, ...]

_MOST_KEPT, _LONGEST_KEPT = 256, 2_000


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
    return Pattern(
        id=names.index(ID),
        source=names.index(SOURCE),
        text=f"ce-specversion: 1.0\r\nce-id: %s\r\n{text}",
        values=places,
        content_type=content_type,
        has_trace=TRACEPARENT in names,
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


def filled(
    found: Pattern, id_: str, values: Sequence[bytes | None], write: Callable[[bytes], str]
) -> str:
    """
    Return the headers with their values.

    Raises:
        Unclear: one has no value.
    """
    given = [values[place] for place in found.values]
    if None in given:
        raise Unclear
    return found.text % (id_, *map(write, given))  # type: ignore[arg-type]  # none of them is None
