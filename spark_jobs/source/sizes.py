"""
The mean size of a query's records, which its batches tell and its planner asks for.

Kafka says how many records lie between two offsets, and not how many bytes.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LARGE = 1 << 20
# The mean of a batch may be lower by chance; the limit is there for memory.
_FORGETTING = 0.5


class Sizes:
    """A mean in a file: the planner is another process on the driver's machine."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._mean = 0.0

    def took(self, records: int, size: int) -> None:
        """Take in a batch; larger records count at once, smaller ones by and by."""
        if not records or not size:
            return
        mean = size / records
        self._mean = max(mean, self._mean + (mean - self._mean) * _FORGETTING)
        new = self._file.with_suffix(".new")
        new.write_text(repr(self._mean), encoding="utf-8")
        new.replace(self._file)

    def records(self, size: int) -> int:
        """
        Return how many records have about `size` bytes, and at least one.

        Before the first batch, each is taken for a large one, of 1 MiB.
        """
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        return max(1, int(size / (float(text) if text else _LARGE)))


@contextmanager
def shared() -> Iterator[str]:
    """Yield the name of a file for the sizes of one run of a query."""
    with tempfile.TemporaryDirectory(prefix="dovecote-sizes-") as folder:
        yield f"{folder}/mean"
