"""The packages that push needs, which come with an extra."""

from importlib.util import find_spec

from outbox.errors import BadSettings

_NEEDED = ("fastapi", "uvicorn", "cryptography", "httptools", "uvloop")


def require_push() -> None:
    """
    Check that the packages are installed.

    Raises:
        BadSettings: one of them is not.
    """
    missing = [each for each in _NEEDED if find_spec(each) is None]
    if missing:
        msg = f'push needs {", ".join(missing)}: pip install "dovecote[push]"'
        raise BadSettings(msg)
