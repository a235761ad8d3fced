"""Tell the events of one shard from those of others, in the log: before they are unpacked."""

import struct
from collections.abc import Callable
from hashlib import sha256

from relay.rules.sharding import Shard, shard_of

# In what `append()` writes: behind format and time the id, then the lengths of kind, subject, key.
_ID, _SIZES = 9, 45
_HEAD_SIZE = 61
_unpack = struct.Struct(">iii").unpack_from
# Keys seen before are looked up: a digest costs as much as unpacking the event.
_MOST_KEYS = 20_000


class Own:
    """Which events are those of a shard, as `shard_of` has it."""

    def __init__(self, shard: Shard) -> None:
        self._number, self._of = shard.number, shard.of
        self.of_event = self._finder()

    def of_row(self, key: bytes | None, event_id: str) -> bool:
        return shard_of(key, event_id, self._of) == self._number

    def of_message(self, data: bytes, start: int) -> bool:
        """Tell it of the message that has the payload of one event from a place on."""
        kind, subject, size = _unpack(data, start + _SIZES)
        place = start + _HEAD_SIZE + kind + max(0, subject)
        key = None if size < 0 else data[place : place + size]
        return self.of_event(key, data[start + _ID : start + _SIZES])

    def _finder(self) -> Callable[[bytes | None, bytes], bool]:
        """Return what tells it of an event by its key and its id."""
        number, of = self._number, self._of
        known: dict[bytes, bool] = {}

        def is_own(key: bytes | None, event_id: bytes) -> bool:
            if key is None:
                return int.from_bytes(sha256(event_id).digest()[:4]) % of == number
            found = known.get(key)
            if found is None:
                if len(known) >= _MOST_KEYS:
                    known.clear()
                found = known[key] = int.from_bytes(sha256(key).digest()[:4]) % of == number
            return found

        return is_own
