"""Every answer of push's API and page has the headers that keep browsers from misusing it."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from dovecote.process.http.safe_headers import SAFE
from dovecote.push.api.app import application
from dovecote.push.api.web import page

_OWN = {"Content-Security-Policy", "Cache-Control"}
"""The page needs its own."""


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/openapi.json", 200),
        ("/subscriptions", 401),
        ("/broker/subscription", 401),
        ("/none", 401),
        ("/", 200),
        ("/page.js", 200),
        ("/loading.js", 200),
        ("/page.css", 200),
    ],
)
def test_answers_are_neither_run_nor_guessed_at_nor_framed_nor_kept(
    path: str, status: int
) -> None:
    control: Any = None
    app = application(control, page(), tokens=[], max_body=100, note=lambda _: None)
    client = TestClient(app, base_url="http://localhost")
    answer = client.get(path)
    assert answer.status_code == status
    own = _OWN if path in {"/", "/page.js", "/loading.js", "/page.css"} else set()
    for name, value in SAFE.items():
        if name in own:
            assert answer.headers.get_list(name) != [value]
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        else:
            assert answer.headers.get_list(name) == [value]
    large = client.post("/openapi.json", content=b"x" * 101)
    assert large.status_code == 413
    assert large.headers["x-content-type-options"] == "nosniff"
