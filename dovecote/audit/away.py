"""The error that a server is away."""

from outbox.errors import DovecoteError


class Away(DovecoteError):
    """A server does not answer, or refuses; the auditor asks again later."""


def away(part: str, said: object) -> Away:
    """Return the error of a part, with the first line of what was said."""
    lines = str(said).strip().splitlines()
    return Away(f"{part}: {lines[0] if lines else type(said).__name__}")
