"""The bodies of requests: a record's value as JSON, or as a whole CloudEvent."""

import json
import re
from collections.abc import Mapping

from outbox.envelope import Record

_JSON = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE)


def structured(
    record: Record, found: Mapping[str, str], content_type: str | None
) -> tuple[bytes, str]:
    """Return the record as one JSON document, and its media type."""
    document: dict[str, object] = dict(found)
    if content_type is not None:
        document["datacontenttype"] = content_type
    head = json.dumps(document, ensure_ascii=False)[:-1].encode()
    if record.value is not None:
        name, data = _data(record.value, content_type)
        head += b', "' + name + b'": ' + data
    return head + b"}", "application/cloudevents+json; charset=UTF-8"


def _data(value: bytes, content_type: str | None) -> tuple[bytes, bytes]:
    """Return the name of the member for the value, and the value as JSON."""
    if content_type is None or _JSON.fullmatch(content_type):
        if is_json(value):
            return b"data", value
    elif content_type.startswith("text/"):
        try:
            return b"data", json.dumps(value.decode(), ensure_ascii=False).encode()
        except UnicodeDecodeError:
            pass  # it does not match its content type: send it whole, as bytes
    from base64 import b64encode

    return b"data_base64", b'"' + b64encode(value) + b'"'


def is_json(value: bytes) -> bool:
    """Return whether bytes are a JSON document in UTF-8."""
    try:
        # Numbers of any size are JSON, so none is converted.
        json.loads(value.decode(), parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> object:
    msg = f"{name} is not JSON"
    raise ValueError(msg)
