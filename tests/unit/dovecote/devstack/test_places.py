import os
import socket
import tempfile
from pathlib import Path

import pytest

from dovecote.devstack import places
from dovecote.devstack.errors import StackError
from dovecote.devstack.places import (
    LOOPBACK,
    User,
    cache,
    free_port,
    hold,
    is_free,
    is_reachable,
    kept_port,
    temporary_directory,
)

STRANGER = User(uid=54321, gid=54321)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose parents below the temporary one are all open."""
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True)
    return inner


@pytest.fixture
def _open_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the test's own folders only: pytest keeps those above them closed."""
    real = places._may_search

    def may_search(path: Path, user: User) -> bool:
        return real(path, user) if path.is_relative_to(tmp_path / "outer") else True

    monkeypatch.setattr(places, "_may_search", may_search)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/site/cache")
    monkeypatch.setenv("DOVECOTE_CACHE", "/elsewhere")
    assert cache() == Path("/elsewhere")
    monkeypatch.delenv("DOVECOTE_CACHE")
    assert cache() == Path("/site/cache/dovecote")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache() == Path.home() / ".cache/dovecote"


def test_a_user_without_a_home_is_asked_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "DOVECOTE_CACHE", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # as of a container under any number

    with pytest.raises(StackError, match="set DOVECOTE_CACHE"):
        cache()


@pytest.mark.usefixtures("_open_parents")
def test_a_closed_parent_keeps_a_stranger_out(folder: Path) -> None:
    assert is_reachable(folder, STRANGER)
    folder.parent.chmod(0o700)
    assert not is_reachable(folder, STRANGER)
    assert is_reachable(folder, User(os.getuid(), os.getgid()))


@pytest.mark.usefixtures("_open_parents")
def test_a_parent_open_to_a_group_lets_its_members_in(folder: Path) -> None:
    folder.parent.chmod(0o710)
    assert not is_reachable(folder, STRANGER)
    assert is_reachable(folder, User(STRANGER.uid, folder.parent.stat().st_gid))


def test_a_temporary_directory_lies_where_its_user_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    made = temporary_directory(STRANGER)

    try:
        assert not made.is_relative_to(tmp_path)
        assert is_reachable(made, STRANGER)
    finally:
        made.rmdir()


def test_without_a_place_for_a_temporary_directory_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "_may_search", lambda *_: False)

    with pytest.raises(StackError, match="set TMPDIR to one that can"):
        temporary_directory(STRANGER)


def test_a_free_port_can_be_listened_on_and_is_then_not_free() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
        assert not is_free(port)


def test_a_port_that_is_held_is_given_to_nobody_else_and_its_server_can_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    with hold(port), socket.socket() as server:
        monkeypatch.setattr(places, "_PORTS", [port, other := free_port()])
        assert {free_port() for _ in range(50)} == {other}
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((LOOPBACK, port))
        server.listen()


def _kept(file: Path) -> int:
    port, held = kept_port(file)
    held.close()
    return port


def test_a_port_is_kept_over_runs_unless_somebody_took_it(tmp_path: Path) -> None:
    file = tmp_path / "port"
    port = _kept(file)
    assert _kept(file) == port
    with socket.socket() as other:
        other.bind((LOOPBACK, port))
        another = _kept(file)
    assert another != port
    assert _kept(file) == another


@pytest.mark.parametrize("text", [b"", b"port", b"\xff", b"0\n", b"-1\n", b"99999\n"])
def test_a_file_that_holds_no_port_gets_a_new_one(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "port"
    file.write_bytes(text)  # a full disk leaves an empty one

    port = _kept(file)

    assert port in places._PORTS
    assert _kept(file) == port


def test_a_port_that_somebody_takes_before_it_is_held_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        taken, free = other.getsockname()[1], free_port()
        looked = iter([taken, free])  # the look at the first one came a moment too early
        monkeypatch.setattr(places, "free_port", lambda: next(looked))
        assert _kept(tmp_path / "port") == free
