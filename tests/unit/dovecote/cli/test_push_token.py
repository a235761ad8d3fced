"""The token that the commands send: to the API that is named, and to nobody else."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.push.api import own_token
from dovecote.push.api.own_token import default_file, made
from dovecote.push.client import Api
from outbox.errors import DovecoteError
from spark_jobs.query.status import look

TABLE = """
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1 0
"""
SECRET = "top-secret-token-of-a-user"  # noqa: S105  # to be kept


class Seen(NamedTuple):
    """A server, and the credentials of its requests."""

    url: str
    tokens: list[str | None]


@contextmanager
def server(redirect: str | None = None, status: int = 302) -> Iterator[Seen]:
    tokens: list[str | None] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            self.send_response(200 if redirect is None else status)
            if redirect is not None:
                self.send_header("Location", redirect)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        do_POST = do_GET  # noqa: N815  # the base's name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield Seen(f"http://127.0.0.1:{found.server_port}", tokens)
        finally:
            found.shutdown()
            thread.join()


def test_it_goes_to_no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    with server() as api, server() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        Api(api.url, SECRET)("GET", "/subscriptions")
        # Nor does anything else that is asked of a process of ours.
        look("shop", api.url)
        assert proxy.tokens == []
        assert api.tokens[0] == f"Bearer {SECRET}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_it_goes_along_no_redirect(status: int, method: str) -> None:
    with server() as thief, server(f"{thief.url}/stolen", status) as api:
        with pytest.raises(DovecoteError, match=r"redirects to '.*/stolen', and no redirect"):
            Api(api.url, SECRET)(method, "/subscriptions", {} if method == "POST" else None)
        assert api.tokens == [f"Bearer {SECRET}"]
        assert thief.tokens == []


def test_the_one_of_the_user_goes_to_this_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("DOVECOTE_API_TOKEN", raising=False)
    assert Api.of("http://127.0.0.1:8080", None).token is None
    token = made(default_file({"XDG_STATE_HOME": str(tmp_path)}))
    for here in ("http://127.0.0.1:8080", "http://localhost", "http://[::1]:9"):
        assert Api.of(here, None).token == token
    for there in (
        *("https://push.example", "http://10.1.2.3", "http://127.0.0.1.example"),
        *("http://localhost@push.example", "http://"),
    ):
        assert Api.of(there, None).token is None
    monkeypatch.setattr("os.geteuid", lambda: 4_321)
    monkeypatch.setattr(own_token, "kernels_tables", lambda: [TABLE])
    with pytest.raises(DovecoteError, match="another user of this machine listens on port 8080"):
        Api.of("http://127.0.0.1:8080", None)
    monkeypatch.setenv("DOVECOTE_API_TOKEN", SECRET)
    assert Api.of("http://127.0.0.1:8080", None).token == SECRET


def test_a_file_of_it_is_an_option_and_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    with server() as api:
        given = ["push", "list", "--api", api.url]
        assert CliRunner().invoke(app, [*given, "--token-file", str(file)]).exit_code == 0
        monkeypatch.setenv("DOVECOTE_API_TOKEN_FILE", str(file))
        monkeypatch.setenv("DOVECOTE_API_TOKEN", "another")
        assert CliRunner().invoke(app, given).exit_code == 0
        assert api.tokens == [f"Bearer {SECRET}"] * 2
