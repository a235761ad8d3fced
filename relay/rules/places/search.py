"""Search the records of a progress topic for the progress of an outbox, up to a fence."""

from typing import Self

from relay.rules.places.progress import Progress, key_of

# Added to progress's key for the record that marks the end.
_FENCE = b"/fence"


class Search:
    """A search in the records of a progress topic, with its results so far."""

    def __init__(self, name: str, outbox: str, fence: str | None) -> None:
        self._name, self._own_key, self.fence = name, key_of(name, outbox), fence
        self._fence_key = fence_key(name, outbox)
        self.own: Progress | None = None
        self.other: Progress | None = None
        """Progress of another outbox with the same name."""
        self.is_fenced = False

    def anew(self) -> Self:
        """Begin again, further back or with another broker."""
        self.own = self.other = None
        self.is_fenced = False
        return self

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """
        Take in the next record.

        Raises:
            ValueError: it is progress of this outbox that this version does not understand.
        """
        if key == self._own_key:
            progress = Progress.decode(value or b"")
            # A relay paused in an earlier term may write late where nothing fences it.
            if self.own is None or progress.term >= self.own.term:
                self.own = progress
        elif key == self._fence_key:
            self.is_fenced = value is not None and value.decode() == self.fence
        elif key is not None and self._name.encode() in {key, key.rpartition(b"/")[0]}:
            self.other = _understood(value) or self.other


def fence_key(name: str, outbox: str) -> bytes:
    """Return the key of the record that marks the end of an outbox's progress."""
    return key_of(name, outbox) + _FENCE


def _understood(value: bytes | None) -> Progress | None:
    try:
        return Progress.decode(value or b"")
    except ValueError:
        return None
