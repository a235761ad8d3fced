"""Events in the form of the SQL functions `encoded` and `emit_many`."""

import struct


def array(*parts: bytes | None) -> bytes:
    head = struct.pack(">iiIii", 1, 0, 17, len(parts), 1)
    packed = [
        struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
        for part in parts
    ]
    return head + b"".join(packed)


def text(number: int) -> bytes:
    return str(number).encode()


def payload(
    *,
    kind: tuple[bytes, bytes, bytes, bytes | None] = (b"t", b"T", b"/s", None),
    id_: str = "0190d3f2-0000-7000-8000-000000000001",
    time: int = 42,
    subject: bytes | None = None,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: tuple[bytes | None, ...] = (),
) -> bytes:
    packed = array(*kind)
    parts = (packed, subject, key, value)
    sizes = [-1 if part is None else len(part) for part in parts]
    event = struct.pack(">Bq36siiii", 1, time, id_.encode(), *sizes)
    event += b"".join(part or b"" for part in parts)
    return event + array(*headers) if headers else event


def packed(*events: bytes) -> bytes:
    """Return one message with the events of these messages, which `payload` has made."""
    heads, bodies = b"", b""
    for event in events:
        *_, kind, subject, key, value = sizes = struct.unpack_from(">Bq36siiii", event)
        body = event[61:]
        headers = len(body) - sum(max(0, size) for size in (kind, subject, key, value))
        heads += struct.pack(">q36siiiii", *sizes[1:], headers)
        bodies += body
    return struct.pack(">Bi", 2, len(events)) + heads + bodies
