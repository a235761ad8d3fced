"""
XML as JSON, and back: `<a x="1"><b>2</b><b/></a>` is `{"a": {"@x": "1", "b": ["2", ""]}}`.

An element with text beside attributes or elements has it as `#text`. Document types are refused:
entities, their expansion and the files that they fetch all need one.
"""

from typing import Any

from lxml import etree

_TEXT = "#text"


def from_xml(data: bytes) -> dict[str, Any]:
    """
    Return the document in `data`.

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
    if b"<!DOCTYPE" in data or "<!DOCTYPE".encode("utf-16-le") in data:
        _refuse()
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(str(error)) from error
    if root.getroottree().docinfo.doctype:
        _refuse()
    return {root.tag: _value(root)}


def to_xml(event: Any) -> bytes:  # noqa: ANN401  # JSON
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
    data: bytes = etree.tostring(_element(name, value), encoding="UTF-8", xml_declaration=True)
    return data


def _refuse() -> None:
    msg = "a document type is not allowed here"
    raise ValueError(msg)


def _value(element: Any) -> Any:  # noqa: ANN401  # lxml's element; JSON
    fields: dict[str, Any] = {f"@{name}": text for name, text in element.attrib.items()}
    texts = [element.text or ""]
    for child in element:
        texts.append(child.tail or "")
        found = _value(child)
        if child.tag not in fields:
            fields[child.tag] = found
        elif isinstance(fields[child.tag], list):
            fields[child.tag].append(found)
        else:
            fields[child.tag] = [fields[child.tag], found]
    text = "".join(texts)
    if not fields:
        return text
    if text.strip():
        fields[_TEXT] = text
    return fields


def _element(name: str, value: Any) -> Any:  # noqa: ANN401  # JSON; lxml's element
    element = etree.Element(name)
    if not isinstance(value, dict):
        element.text = _text(value)
        return element
    for field, inner in value.items():
        if field == _TEXT:
            element.text = _text(inner)
        elif field.startswith("@"):
            element.set(field[1:], _text(inner))
        else:
            element.extend(
                _element(field, each) for each in (inner if isinstance(inner, list) else [inner])
            )
    return element


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    msg = "a list of lists has no form in XML"
    raise ValueError(msg)
