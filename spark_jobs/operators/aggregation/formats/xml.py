"""
XML as JSON, and back: `<a x="1"><b>2</b><b/></a>` is `{"a": {"@x": "1", "b": ["2", ""]}}`.

An element with text beside attributes or elements has it as `#text`. Children whose names take
turns have the order of the names as `#order`, since JSON puts equal names together. Document types
are refused: entities, their expansion and the files that they fetch all need one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple
from xml.parsers import expat

from lxml import etree

MOST_ATTRIBUTES = 1_000
"""The most attributes of an element that is written."""

_TEXT, _ORDER = "#text", "#order"
_FEW = 30


class Names:
    """The names of elements and attributes in events: with a prefix for each known namespace."""

    def __init__(self, namespaces: Mapping[str, str] | None = None) -> None:
        known = namespaces or {}
        self.nsmap = {prefix or None: uri for prefix, uri in known.items()}
        self._prefixes = {uri: prefix for prefix, uri in known.items()}
        self._uris = dict(known)

    def short(self, tag: str, *, is_attribute: bool = False) -> str:
        """Return the name in events; one of an unknown namespace stays `{namespace}name`."""
        uri, _, name = tag[1:].rpartition("}") if tag.startswith("{") else ("", "", tag)
        prefix = self._prefixes.get(uri)
        if prefix is None or (is_attribute and not prefix):
            return tag
        return f"{prefix}:{name}" if prefix else name

    def full(self, name: str, *, is_attribute: bool = False) -> str:
        """Return the name as the library writes it: `{namespace}name`."""
        if name.startswith("{"):
            return name
        prefix, colon, local = name.rpartition(":")
        if not colon and is_attribute:
            return name
        uri = self._uris.get(prefix)
        return name if uri is None else f"{{{uri}}}{local}"


_PLAIN = Names()


def from_xml(
    data: bytes, names: Names = _PLAIN, lists: Collection[str] = frozenset()
) -> dict[str, Any]:
    """
    Return the document in `data`; elements with a path in `lists` are always lists.

    Raises:
        ValueError: it is not a document, or has a document type.
    """
    # Documents must not share a parser, and making one is cheap.
    parser = etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    _refuse_document_type(data)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(str(error)) from error
    if root.getroottree().docinfo.doctype:
        _refuse()
    name = names.short(root.tag)
    paths = _Paths(lists, max(map(len, lists), default=0))
    return {name: _value(root, paths.inner("", name), names, paths)}


def to_xml(event: Any, names: Names = _PLAIN) -> bytes:  # noqa: ANN401  # JSON
    """
    Return `event` as a document.

    Raises:
        ValueError: it does not have exactly one root, or a name or a text does not fit into XML.
    """
    if not isinstance(event, dict) or len(event) != 1:
        msg = "a document is made of an object with one field, its root"
        raise ValueError(msg)
    ((name, value),) = event.items()
    if isinstance(value, list):
        msg = "a document has one root, not a list of them"
        raise ValueError(msg)  # noqa: TRY004  # about the event, as the others
    root = _element(name, value, names)
    data: bytes = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return data


def _refuse_document_type(data: bytes) -> None:
    """Look into the prolog, where a document type is; the rest has the word only as text."""
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = lambda *_: _refuse()
    parser.StartElementHandler = _end
    try:
        parser.Parse(data, True)  # noqa: FBT003  # the data is complete
    except (StopIteration, expat.ExpatError, LookupError):
        return  # the other parser says what is wrong


def _end(*_: object) -> None:
    raise StopIteration


def _refuse() -> None:
    msg = "a document type is not allowed here"
    raise ValueError(msg)


class _Paths(NamedTuple):
    """The paths of elements that are always lists."""

    lists: Collection[str]
    longest: int

    def inner(self, path: str | None, name: str) -> str | None:
        """Return the path of a child; None: it is longer than any of these."""
        if path is None or len(path) + len(name) >= self.longest + (not path):
            return None
        return f"{path}.{name}" if path else name


def _value(element: Any, path: str | None, names: Names, paths: _Paths) -> Any:  # noqa: ANN401  # lxml's element; JSON
    fields: dict[str, Any] = {
        f"@{names.short(name, is_attribute=True)}": text for name, text in _attributes(element)
    }
    texts, order = [element.text or ""], []
    for child in element:
        texts.append(child.tail or "")
        name = names.short(child.tag)
        order.append(name)
        inner = paths.inner(path, name)
        found = _value(child, inner, names, paths)
        if name not in fields:
            fields[name] = [found] if inner in paths.lists else found
        elif isinstance(fields[name], list):
            fields[name].append(found)
        else:
            fields[name] = [fields[name], found]
    text = "".join(texts)
    if not fields:
        return text
    if text.strip():
        fields[_TEXT] = text
    if len(list(groupby(order))) > len({*order}):
        fields[_ORDER] = order
    return fields


def _attributes(element: Any) -> Iterable[tuple[str, str]]:  # noqa: ANN401  # lxml's element
    """Yield the attributes of an element in a time that grows with their number alone."""
    if len(element.attrib) <= _FEW:
        found: list[tuple[str, str]] = element.attrib.items()
        return found
    # `items` looks for each value from the first attribute on.
    return (
        (name, str(text)) for name, text in zip(element.keys(), element.xpath("@*"), strict=True)
    )


def _element(name: str, value: Any, names: Names) -> Any:  # noqa: ANN401  # JSON; lxml's element
    element = etree.Element(names.full(name), nsmap=names.nsmap)
    if not isinstance(value, dict):
        element.text = _text(value)
        return element
    # Setting one more looks through all that are there.
    if len(value) > MOST_ATTRIBUTES and sum(each[:1] == "@" for each in value) > MOST_ATTRIBUTES:
        msg = f"{name[:80]!r} has more than {MOST_ATTRIBUTES:,} attributes"
        raise ValueError(msg)
    children: dict[str, list[Any]] = {}
    for field, inner in value.items():
        if field == _TEXT:
            element.text = _text(inner)
        elif field.startswith("@"):
            element.set(names.full(field[1:], is_attribute=True), _text(inner))
        elif field != _ORDER:
            children[field] = [*inner] if isinstance(inner, list) else [inner]
    for field, inner in _in_order(children, value.get(_ORDER, ())):
        element.append(_element(field, inner, names))
    return element


def _in_order(children: Mapping[str, list[Any]], order: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # JSON
    """Yield the children in their order; a script may have added some, or taken some away."""
    if not isinstance(order, list | tuple):
        msg = f"{_ORDER} is the list of the children's names"
        raise ValueError(msg)  # noqa: TRY004  # about the event, as the others
    left = {name: iter(values) for name, values in children.items()}
    for name in order:
        for value in left.get(name, ()):
            yield name, value
            break
    for name, values in left.items():
        for value in values:
            yield name, value


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    msg = "a list of lists has no form in XML"
    raise ValueError(msg)
