"""The parent hands requests on to one of its processes, whole and once."""

import contextlib
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from dovecote.processes.rules.keeping import QUIET
from tests.support.small_crews import SmallCrew, small_crew
from tests.support.waiting import patient, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")

# An application as push has: it refuses who has no token before it reads, and may take its time.
API = """
async def api(scope, receive, send):
    headers = dict(scope["headers"])
    if b"authorization" not in headers:
        await answer(send, 401, b"{}")
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    Path(f"got-{number}").touch()
    if scope["path"] == "/slow":
        await __import__("asyncio").sleep(3)
    if scope["path"] == "/fatal":
        os._exit(9)
    told = {"client": scope["client"][0], "bytes": len(body), "number": number}
    told["headers"] = sorted(name.decode() for name in headers)
    await answer(send, 200, json.dumps(told).encode(), more={"etag": "x"})
globals()["api"] = api
"""


@pytest.fixture
def crew(tmp_path: Path) -> "contextlib.AbstractContextManager[SmallCrew]":
    return small_crew(tmp_path, starting=API)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), patient(5)).close()
    except ConnectionError:
        return False
    return True


def test_a_stranger_is_told_so_before_it_has_sent_a_body(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        with socket.create_connection(("127.0.0.1", made.port), timeout=patient(10)) as asked:
            asked.sendall(
                b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90000\r\n\r\nbegin"
            )
            assert asked.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_bodies_are_handed_on_whole_however_they_are_sent(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        whole = made.api("POST", "/x", b"x" * 100_000, authorization="t")
        assert (whole.status, whole.body["bytes"]) == (200, 100_000)
        assert made.api("POST", "/x", b"", authorization="t").body["bytes"] == 0
        assert made.api("GET", "/x", authorization="t").body["bytes"] == 0
        for count, status in ((9, 200), (11, 413)):
            connection = HTTPConnection("127.0.0.1", made.port, timeout=patient(20))
            with contextlib.closing(connection):
                parts = (b"y" * 10_000 for _ in range(count))
                own = {"authorization": "t", "transfer-encoding": "chunked"}
                connection.request("POST", "/x", parts, own, encode_chunked=True)
                answer = connection.getresponse()
                assert answer.status == status
                assert (b'"bytes": 90000' in answer.read()) == (status == 200)


def test_an_answer_to_head_has_the_length_of_the_one_to_get(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        lengths = set()
        for method in ("GET", "HEAD"):
            connection = HTTPConnection("127.0.0.1", made.port, timeout=patient(20))
            with contextlib.closing(connection):
                connection.request(method, "/x", headers={"authorization": "t"})
                answer = connection.getresponse()
                assert answer.headers["etag"] == "x"
                lengths.add(answer.headers["content-length"])
        assert len(lengths) == 1


def test_the_address_of_the_client_is_known_and_no_client_can_say_another(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        odd = {"authorization": "t", "dovecote-caller": f"{'0' * 32} 6.6.6.6"}
        found = made.api("GET", "/x", **odd)
        assert found.body["client"] == "127.0.0.1"
        with socket.create_connection(
            ("127.0.0.1", made.port), patient(10), source_address=("127.0.0.9", 0)
        ) as asked:
            asked.sendall(b"GET /x HTTP/1.1\r\nhost: localhost\r\nauthorization: t\r\n\r\n")
            until(lambda: b"127.0.0.9" in asked.recv(2000), within=10, what="the address")


def test_many_slow_requests_are_answered_side_by_side(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made, ThreadPoolExecutor(40) as threads:
        made.gets_ready()
        began = time.monotonic()
        found = list(
            threads.map(lambda _: made.api("GET", "/slow", authorization="t").status, range(40))
        )
        assert found == [200] * 40
        assert time.monotonic() - began < patient(6)


def test_another_process_does_what_one_that_is_gone_has_not_got(
    tmp_path: Path,
) -> None:
    once = f"{API}if number == 0 and not first: time.sleep(600)\n"
    port_of = "Path(f'port-{number}').write_text(str(port))"
    with small_crew(tmp_path, starting=once, working=port_of) as made:
        made.gets_ready()
        port = made.wrote("port-0")
        os.kill(made.children()[0], signal.SIGKILL)
        until(lambda: not listens(port), within=10, what="that it is gone")
        found = made.api("POST", "/x", b"body", authorization="t")
        assert (found.status, found.body["number"]) == (200, 1)


def test_a_request_whose_process_ends_is_not_done_twice(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        found = made.api("POST", "/fatal", b"body", authorization="t")
        assert found.status == 503
        assert "see whether it was done, before you ask again" in found.body["error"]
        assert len(list(made.folder.glob("got-*"))) == 1


def test_a_request_does_not_wait_for_ever_for_a_process_that_is_stopped(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        stopped = made.children()[0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            found = made.api("GET", "/x", authorization="t")
            assert (found.status, found.body["number"]) == (200, 1)
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_a_process_that_is_silent_gets_no_more_requests(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        stopped, began = made.children()[0], time.monotonic()
        os.kill(stopped, signal.SIGSTOP)
        try:
            until(lambda: time.monotonic() - began > QUIET + 2, within=10, what="its silence")
            found = made.api("POST", "/x", b"body", authorization="t")
            assert (found.status, found.body["number"]) == (200, 1)
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_a_process_that_is_not_well_is_asked_after_one_that_is(tmp_path: Path) -> None:
    ill = """
class Ill:
    def ready(self):
        ok = not Path(f"ill-{number}").exists()
        return HealthReport(ok, "member", "as told", State.WORKING if ok else State.FAILING)
globals()["Well"] = Ill
"""

    def asked(made: SmallCrew) -> int:
        return int(made.api("GET", "/x", authorization="t").body["number"])

    with small_crew(tmp_path, starting=API + ill) as made:
        made.gets_ready()
        assert asked(made) == 0
        (tmp_path / "ill-0").touch()
        until(lambda: asked(made) == 1, within=10, what="the one that is well answers")
        (tmp_path / "ill-1").touch()
        until(lambda: asked(made) == 0, within=10, what="one answers though none is well")


def test_a_client_that_goes_in_the_middle_of_its_body_leaves_nothing(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made:
        made.gets_ready()
        head = b"POST /x HTTP/1.1\r\nhost: localhost\r\nauthorization: t\r\n"
        for _ in range(80):  # more than there may be at a time
            with socket.create_connection(("127.0.0.1", made.port), patient(10)) as asked:
                asked.sendall(head + b"content-length: 9000\r\n\r\nhalf")
        until(
            lambda: made.api("POST", "/x", b"body", authorization="t").status == 200,
            within=5,
            what="that there is room",
        )
        assert "Traceback" not in made.said()


def test_slow_bodies_keep_nobody_else_from_asking(
    crew: "contextlib.AbstractContextManager[SmallCrew]",
) -> None:
    with crew as made, contextlib.ExitStack() as stack:
        made.gets_ready()
        head = b"POST /x HTTP/1.1\r\nhost: localhost\r\nauthorization: t\r\n"
        for _ in range(70):
            asked = socket.create_connection(("127.0.0.1", made.port), patient(10))
            stack.enter_context(asked)
            asked.sendall(head + b"content-length: 9000\r\n\r\nhalf")
        assert made.api("POST", "/x", b"body", authorization="t").status == 200


def test_a_process_that_is_too_busy_for_its_metrics_hides_nobody_elses(tmp_path: Path) -> None:
    busy = """
class Busy:
    def collect(self):
        raise RuntimeError("busy")
if number == 0:
    globals()["CollectorRegistry"] = Busy
"""
    with small_crew(tmp_path, starting=busy) as crew:
        crew.gets_ready()
        found = crew.api("GET", "/metrics")
        assert found.status == 200
        assert 'dovecote_process_up{process="1"} 1.0' in found.body
