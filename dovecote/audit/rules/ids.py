"""Names of events as numbers, the time in them, and the partition of a key."""

from hashlib import blake2b, sha256

_SALT_BITS = (1 << 62) - 1
_TIME_SHIFT = 80
_SEPARATORS = (b"\x00", b"\x01", b"\x02", b"\x03")
DIGEST_BYTES = 8


def salt(source: str, topic: str) -> int:
    """Return what tells equal ids of other sources and topics apart."""
    text = f"{source}\0{topic}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest()) & _SALT_BITS


def number_of(text: bytes) -> int | None:
    """Return the number of a UUID's text; None: it is not one as Dovecote writes them."""
    if len(text) != 36:  # noqa: PLR2004  # the length of a UUID in text
        return None
    try:
        return int(text.replace(b"-", b""), 16) if text.count(b"-") == 4 else None  # noqa: PLR2004  # as above
    except ValueError:
        return None


def text_of(number: int) -> str:
    """Return the text of the UUID with this number."""
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def time_in(number: int) -> int | None:
    """Return the time in a UUIDv7, in milliseconds since 1970; None: it holds none."""
    is_seventh = (number >> 76) & 0xF == 7 and (number >> 62) & 3 == 2  # noqa: PLR2004  # RFC 9562
    return number >> _TIME_SHIFT if is_seventh else None


def first_at(milliseconds: int) -> int:
    """Return the lowest number of an id that was made at this time."""
    return max(0, milliseconds) << _TIME_SHIFT


def digest(key: bytes | None, value: bytes | None) -> bytes:
    """Return what must agree in a row and its record: a digest of key and value."""
    separator = _SEPARATORS[(key is None) + 2 * (value is None)]
    return sha256((key or b"") + separator + (value or b"")).digest()[:DIGEST_BYTES]


DIGEST_SQL = (
    "substring(sha256(coalesce(key, ''::bytea) || CASE WHEN value IS NULL THEN CASE WHEN key IS"
    " NULL THEN '\\x03'::bytea ELSE '\\x02'::bytea END WHEN key IS NULL THEN '\\x01'::bytea ELSE"
    " '\\x00'::bytea END || coalesce(value, ''::bytea)) FROM 1 FOR 8)"
)
"""The same as `digest`, of a row, for Postgres."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's clients give a key (murmur2)."""
    length = len(key)
    word, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * word & mask
        k = (k ^ (k >> 24)) * word & mask
        h = (h * word & mask) ^ k
    rest = length - whole
    if rest == 3:  # noqa: PLR2004  # the algorithm's own
        h ^= key[whole + 2] << 16
    if rest >= 2:  # noqa: PLR2004  # as above
        h ^= key[whole + 1] << 8
    if rest >= 1:
        h = (h ^ key[whole]) * word & mask
    h = (h ^ (h >> 13)) * word & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions
