"""The health check of a container: what it asks, and what it says of each answer."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dovecote.devstack.places import free_port
from dovecote.process.http import probe


@contextmanager
def answering(status: int) -> Iterator[tuple[int, list[str]]]:
    """Answer every request; yield the port, and the paths that are asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"because")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_of_200_is_well_and_any_other_one_says_why() -> None:
    with answering(200) as (port, asked):
        assert probe.ask("/readyz", [port]) is None
        assert asked == ["/readyz"]
    with answering(503) as (port, _):
        assert probe.ask("/readyz", [port]) == f"{port}/readyz answers 503: because"


def test_the_first_port_that_somebody_listens_on_decides() -> None:
    with answering(503) as (ill, _), answering(200) as (well, _):
        assert probe.ask("/healthz", [free_port(), well, ill]) is None
        assert probe.ask("/healthz", [free_port(), ill, well]) is not None


def test_where_nobody_listens_it_says_what_to_set() -> None:
    port = free_port()
    said = f"nothing listens on {port}: set http.port, and DOVECOTE_HEALTH_PORT to it"
    assert (probe.ask("/healthz", [port]) or "").startswith(said)


def test_a_listener_that_is_no_server_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert probe.ask("/healthz", [port]) == f"{port}/healthz: timed out"


@pytest.mark.parametrize(
    ("words", "environ", "asked"),
    [
        ([], {}, ("/healthz", (9464, 8080))),
        (["/readyz"], {}, ("/readyz", (9464, 8080))),
        (["/readyz", "80"], {}, ("/readyz", [80])),
        ([], {"DOVECOTE_HEALTH_PORT": "81"}, ("/healthz", [81])),
        (["80"], {"DOVECOTE_HEALTH_PORT": "81"}, ("/healthz", [80])),
    ],
)
def test_arguments_and_environment_name_the_path_and_the_port(
    words: list[str], environ: dict[str, str], asked: object
) -> None:
    assert probe.asked(words, environ) == asked


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    def made(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["probe", *words])
        try:
            probe.main()
        except SystemExit as end:
            return int(end.code or 0), capsys.readouterr().err
        return 0, capsys.readouterr().err

    return made


def test_its_status_says_it_and_a_line_why(run: Callable[..., tuple[int, str]]) -> None:
    with answering(200) as (port, _):
        assert run("/healthz", str(port)) == (0, "")
    with answering(500) as (port, _):
        assert run(str(port)) == (1, f"{port}/healthz answers 500: because\n")
    status, said = run("x")
    assert (status, said.count("\n")) == (1, 1)
    assert "give a path such as /readyz, and a port" in said
