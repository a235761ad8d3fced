"""A server answers only requests that name one of its own hosts."""

import pytest

from dovecote.process.http.hosts import Hosts, is_loopback

LOCAL = Hosts.of("127.0.0.1", [], "")
NAMED = Hosts.of("127.0.0.1", ["push.shop.example"], "")
ANY = "0.0.0.0"  # noqa: S104  # bound by nobody
WIDE = Hosts.of(ANY, ["Push.Shop.example"], "node-7")


@pytest.mark.parametrize(
    ("hosts", "host", "ours"),
    [
        *((LOCAL, each, True) for each in ("localhost", "LOCALHOST:80", "localhost.", "[::1]:9")),
        *((LOCAL, each, True) for each in ("127.0.0.1", "127.0.0.1:8080", "127.9.9.9")),
        *((LOCAL, each, False) for each in ("", "attacker.example", "node-7", "10.1.2.3")),
        (LOCAL, None, True),
        *((LOCAL, each, False) for each in ("localhost.attacker.example", ANY, "[::]")),
        *((LOCAL, each, False) for each in ("a@localhost", "localhost/x", "localhost#x", "[::1")),
        *((LOCAL, each, False) for each in ("localhost:x", "localhost:1:2", " localhost", "[a]")),
        *(
            (LOCAL, each, False)
            for each in ("localhost\\x", "l\u043ecalhost", "127.1", "2130706433")
        ),
        (NAMED, "push.shop.example:443", True),
        (NAMED, "shop.example", False),
        (NAMED, "x.push.shop.example", False),
        *((WIDE, each, True) for each in ("10.1.2.3:80", "[fd00::7]", "node-7", "NODE-7:9464")),
        *((WIDE, each, True) for each in ("push.shop.example", "localhost", "192.0.2.1")),
        *((WIDE, each, False) for each in ("attacker.example", "node-8", "node-7.example", "")),
    ],
)
def test_a_host_is_ours_by_name_or_by_address(hosts: Hosts, host: str | None, ours: bool) -> None:  # noqa: FBT001  # of the table
    assert (not hosts.refusal(host)) is ours


@pytest.mark.parametrize(
    ("hosts", "host", "origin", "ours"),
    [
        (LOCAL, "localhost:8080", "http://localhost:8080", True),
        (LOCAL, "127.0.0.1:8080", "http://localhost:8080", True),
        (LOCAL, "127.0.0.1:8080", "https://attacker.example", False),
        (LOCAL, "127.0.0.1:8080", "null", False),
        (LOCAL, None, "http://localhost:8080", False),
        (LOCAL, "127.0.0.1:8080", "http://[::1", False),
        (NAMED, "127.0.0.1:8080", "https://push.shop.example", True),
        (WIDE, "10.1.2.3:8080", "http://10.1.2.3:8080", True),
        # An attacker's page may have an address in place of a name.
        (WIDE, "10.1.2.3:8080", "http://192.0.2.1", False),
    ],
)
def test_a_page_of_another_site_is_refused(
    hosts: Hosts,
    host: str | None,
    origin: str,
    ours: bool,  # noqa: FBT001  # of the table
) -> None:
    assert (not hosts.refusal(host, origin)) is ours


def test_a_refusal_says_what_to_do_and_no_more_than_fits() -> None:
    assert LOCAL.refusal("a.example") == (
        "the request names the host 'a.example', which is none of this server's: ask for its "
        "address, or list the name in http.hosts"
    )
    assert len(LOCAL.refusal("a" * 9_000)) < 300
    assert "\n" not in LOCAL.refusal("a\nb")


def test_only_this_machine_reaches_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.0.2", "::1", "localhost")))
    assert not any(map(is_loopback, (ANY, "::", "10.0.0.1", "shop.example", "")))
