"""A process that is late to answer is asked once more, and no other."""

from collections.abc import Iterator
from urllib.error import HTTPError, URLError
from urllib.request import Request

import pytest

from dovecote.observe import group

URL = "http://shop.example:8000"
LATE, LATE_TO_CONNECT = TimeoutError("timed out"), URLError(TimeoutError("timed out"))
REFUSED = URLError(ConnectionRefusedError(111, "Connection refused"))
BUSY = HTTPError(URL, 503, "busy", {}, None)  # type: ignore[arg-type]  # no header is looked at


@pytest.mark.parametrize(
    ("answers", "ready", "said"),
    [
        ([b"well"], True, "well"),
        ([LATE, b"well"], True, "well"),
        ([LATE_TO_CONNECT, b"well"], True, "well"),
        ([LATE, LATE], False, "it does not answer (timed out)"),
        ([REFUSED], False, "it does not answer (Connection refused)"),
        ([LATE, BUSY], False, "it answers 503"),
    ],
)
def test_it_is_asked_once_more_only_if_it_is_late(
    monkeypatch: pytest.MonkeyPatch, answers: list[bytes | OSError], *, ready: bool, said: str
) -> None:
    left: Iterator[bytes | OSError] = iter(answers)

    def ask(request: Request, seconds: float, most: int) -> bytes:
        assert (request.full_url, seconds > 1, most > 1) == (f"{URL}/readyz", True, True)
        answer = next(left)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(group, "ask", ask)

    found = group._ready(URL)

    assert (found.ready, found.said) == (ready, said)
    assert not list(left)
