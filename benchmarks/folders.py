"""The bytes that a job puts into a folder."""

from pathlib import Path


class Written:
    """The bytes that come into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._sizes()

    def more(self) -> int:
        """Return how many have come since it was last asked."""
        found = self._sizes()
        new = sum(size - self._seen.get(file, 0) for file, size in found.items())
        self._seen |= found
        return new

    def _sizes(self) -> dict[Path, int]:
        sizes = {}
        for file in self._folder.rglob("*"):
            try:
                if file.is_file():
                    sizes[file] = file.stat().st_size
            except FileNotFoundError:  # Spark removes what it needs no more
                continue
        return sizes
