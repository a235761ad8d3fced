"""The keys by which events are grouped."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from outbox.envelope import Record
from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.config import HashKey, HeadersKey, Key, RecordKey

KeyOf = Callable[[Record], bytes | None]
SEPARATOR = "|"


class NoKey(DovecoteError):
    """A record lacks the parts of its key."""


def key_of(key: Key) -> KeyOf | None:
    """Return a function that finds the key of a record; None: a script does."""
    match key:
        case RecordKey():
            return lambda record: record.key
        case HeadersKey(keys=names):
            return lambda record: _of_headers(dict(record.headers), names)
        case HashKey(algorithm=algorithm):
            name = digest_name(algorithm)
            return lambda record: hashlib.new(name, record.value or b"").hexdigest().encode()
        case _:
            return None


def digest_name(algorithm: str) -> str:
    """Return Python's name for an algorithm of the manual."""
    return algorithm.replace("-", "").lower()


def _of_headers(found: Mapping[str, Any], names: tuple[str, ...]) -> bytes:
    for name in names:
        if found.get(name) is None:
            msg = f'there is no header "{name}" to make the key of'
            raise NoKey(msg)
    return SEPARATOR.encode().join(found[name] for name in names)
