"""The packages that push needs, which come with an extra."""

from dovecote.cli.extras import require

_NEEDED = ("fastapi", "uvicorn", "cryptography", "httptools", "uvloop")


def require_push() -> None:
    """
    Check that the packages are installed.

    Raises:
        BadSettings: one of them is not.
    """
    require(*_NEEDED, extra="push", user="push")
