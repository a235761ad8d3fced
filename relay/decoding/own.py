"""Tell one shard's events in the log from those of other shards, before they are decoded."""

import struct
from collections.abc import Callable
from hashlib import sha256

from relay.rules.sharding import Shard, shard_of

# Places in what `append()` writes: the id follows format and time, then come the lengths of kind,
# subject and key.
_ID, _SIZES = 9, 45
_HEAD_SIZE = 61
_unpack = struct.Struct(">iii").unpack_from
# Known keys are looked up: computing a digest costs as much as decoding the event.
_MOST_KEYS = 20_000
_LONGEST_KEY = 1_000


class Own:
    """Decides which events belong to a shard, by the rule of `shard_of`."""

    def __init__(self, shard: Shard) -> None:
        self._number, self._of = shard.number, shard.of
        self.of_event = self._finder()

    def of_row(self, key: bytes | None, event_id: str) -> bool:
        return shard_of(key, event_id, self._of) == self._number

    def of_message(self, data: bytes, start: int) -> bool:
        """Return whether the message whose payload begins at `start` holds one of our events."""
        kind, subject, size = _unpack(data, start + _SIZES)
        place = start + _HEAD_SIZE + kind + max(0, subject)
        key = None if size < 0 else data[place : place + size]
        return self.of_event(key, data[start + _ID : start + _SIZES])

    def _finder(self) -> Callable[[bytes | None, bytes], bool]:
        """Return a function that decides by an event's key and id."""
        number, of = self._number, self._of
        known: dict[bytes, bool] = {}

        def is_own(key: bytes | None, event_id: bytes) -> bool:
            if key is None:
                return int.from_bytes(sha256(event_id).digest()[:4]) % of == number
            found = known.get(key)
            if found is None:
                if len(known) >= _MOST_KEYS:
                    known.clear()
                found = int.from_bytes(sha256(key).digest()[:4]) % of == number
                if len(key) <= _LONGEST_KEY:
                    known[key] = found
            return found

        return is_own
