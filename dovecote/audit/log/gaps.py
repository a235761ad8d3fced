"""Say of which times nothing is known."""

from datetime import UTC, datetime
from typing import Any, NamedTuple


class NotAudited(NamedTuple):
    """A time of which nothing is known, in milliseconds since 1970."""

    part: str
    since: int | None
    """None: all that was before."""
    until: int
    why: str

    @property
    def text(self) -> str:
        """The sentence that an operator reads."""
        if self.since is None:
            return (
                f"{self.part}: its audit begins at {_time(self.until)} ({self.why}): what was "
                "committed before is not audited"
            )
        return (
            f"{self.part}: not audited from {_time(self.since)} to {_time(self.until)}: {self.why}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as a statement has it."""
        since = None if self.since is None else _time(self.since)
        return {"part": self.part, "from": since, "to": _time(self.until), "why": self.why}


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
