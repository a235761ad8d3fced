"""The client connects only to addresses that are allowed, and verifies TLS."""

import ssl
from pathlib import Path

import pytest

from dovecote.push.http.client import Client, trusting
from dovecote.push.http.connection import SendFailed
from dovecote.push.http.guard import Guard
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.rules.sending.request import Form
from tests.support.certificates import certificates
from tests.support.dns_server import name_server
from tests.support.http_servers import DONE, LOOPBACK, QUICK, REQUEST, Server, run


def test_nobody_is_connected_to_who_is_not_allowed() -> None:
    async def test() -> None:
        async with Server(DONE) as server:
            client = Client(Form(url=server.url), Guard(), QUICK)
            with pytest.raises(SendFailed, match="loopback"):
                await client.send(REQUEST)
            assert server.connections == 0

    run(test)


def test_the_address_that_was_checked_is_the_one_that_is_connected_to() -> None:
    async def test() -> None:
        async with Server(DONE) as server:
            asked_for = 0

            async def resolve(host: str, _: int) -> list[str]:
                nonlocal asked_for
                asked_for += 1
                assert host == "rebinds.example"
                return ["127.0.0.1"] if asked_for == 1 else ["169.254.169.254"]

            url = f"http://rebinds.example:{server.port}/hook"
            client = Client(Form(url=url), Guard(LOOPBACK, resolve), QUICK)
            assert (await client.send(REQUEST)).status == 204
            assert asked_for == 1
            assert server.heads[0].split(b"\r\n")[1] == b"Host: rebinds.example:%d" % server.port
            await client.close()
            with pytest.raises(SendFailed, match="link-local"):
                await client.send(REQUEST)

    run(test)


def test_a_name_server_that_rebinds_a_name_gains_nothing() -> None:
    """The name stands for an allowed address first, and for this machine's own afterwards."""

    async def test() -> None:
        # The same port of two addresses: a second question would lead to the other server.
        async with (
            Server(DONE, host="127.0.0.2") as good,
            Server(DONE, port=good.port) as inner,
            name_server("127.0.0.2", "127.0.0.1") as names,
        ):
            form = Form(url=f"http://rebinds.example:{good.port}/hook")
            client = Client(form, Guard(networks(["127.0.0.2"]), names.resolve), QUICK)
            assert (await client.send(REQUEST)).status == 204
            assert names.asked == ["rebinds.example."]
            await client.close()
            with pytest.raises(SendFailed, match="loopback"):
                await client.send(REQUEST)
            assert len(names.asked) == 2
            assert (good.connections, inner.connections) == (1, 0)

    run(test)


def test_another_address_of_a_name_is_tried_when_one_does_not_answer() -> None:
    async def test() -> None:
        async with Server(DONE) as server:

            async def resolve(_host: str, _port: int) -> list[str]:
                return ["127.0.0.2", "127.0.0.1"]

            url = f"http://many.example:{server.port}/hook"
            client = Client(Form(url=url), Guard(LOOPBACK, resolve), QUICK)
            assert (await client.send(REQUEST)).status == 204
            await client.close()

    run(test)


def test_no_connection_is_a_failure_that_says_so() -> None:
    async def test() -> None:
        async with Server(DONE) as server:
            url = server.url
        client = Client(Form(url=url), Guard(LOOPBACK), QUICK)
        with pytest.raises(SendFailed, match="no connection to 127"):
            await client.send(REQUEST)

    run(test)


def test_tls_is_verified_and_so_is_the_name(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async def attempt(host: str, ca_file: str | None) -> int:
        async with Server(DONE, context) as server:
            form = Form(url=f"https://{host}:{server.port}/hook")
            client = Client(form, Guard(LOOPBACK, resolve), QUICK, ca_file=ca_file)
            try:
                return (await client.send(REQUEST)).status
            finally:
                await client.close()

    authority = str(files.authority)
    assert run(lambda: attempt("127.0.0.1", authority)) == 204
    for host, ca_file in (("127.0.0.1", None), ("other.example", authority)):
        with pytest.raises(SendFailed, match="TLS"):
            run(lambda host=host, ca_file=ca_file: attempt(host, ca_file))  # type: ignore[misc]  # of a loop
    trusting.cache_clear()
