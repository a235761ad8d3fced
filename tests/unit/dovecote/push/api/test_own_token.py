"""The token that a process makes for itself, and that nobody but its user can read."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dovecote.push.api.own_token import default_file, kernels_tables, made, read, strangers
from outbox.errors import BadSettings


def test_it_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "state" / "dovecote" / "push-token"
    before = os.umask(0)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(made, [file] * 8))
    finally:
        os.umask(before)
    assert found == {read(file)}
    assert len(found.pop()) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in file.parent.iterdir()] == ["push-token"]
    assert made(tmp_path / "another") != read(file)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o660])
def test_one_that_others_may_know_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "push-token"
    made(file)
    file.chmod(mode)
    for use in (made, read):
        with pytest.raises(BadSettings, match=f"mode is {mode:04o}.*remove it"):
            use(file)


@pytest.mark.parametrize("text", ["", "\n", "short", "with a space in the middle", "\0" * 40])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "push-token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(BadSettings, match="holds no token"):
        made(file)


def test_one_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "push-token"
    made(file)
    if file.stat().st_uid == 0:
        os.chown(file, 4_321, 4_321)
    monkeypatch.setattr("os.geteuid", lambda: 1_234)
    with pytest.raises(BadSettings, match="another user"):
        read(file)


def test_where_it_cannot_be_made_the_settings_that_help_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSettings, match=r"set api\.tokens, or api\.token_file"):
        made(tmp_path / "file" / "push-token")
    with pytest.raises(BadSettings, match="Is a directory"):
        made(tmp_path)


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0
   1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1 0
   2: 0100007F:1F92 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 1 1 0
"""


def test_a_stranger_on_its_port_is_seen() -> None:
    me = {1000, 0}
    assert not strangers(8080, [TABLE], me)
    assert strangers(8081, [TABLE], me)
    assert not strangers(8082, [TABLE], me)  # a connection that is no listener
    assert not strangers(9000, [TABLE], me)
    assert strangers(8080, ["header\n", TABLE], {1001})
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not strangers(port, kernels_tables(), {os.geteuid()})
        if any(f":{port:04X} " in table for table in kernels_tables()):
            assert strangers(port, kernels_tables(), {os.geteuid() + 1})


def test_its_place_is_in_the_state_of_the_user() -> None:
    assert default_file({"XDG_STATE_HOME": "/s"}) == Path("/s/dovecote/push-token")
    for base in ("", "relative"):
        found = default_file({"XDG_STATE_HOME": base, "HOME": "/home/ada"})
        assert found == Path("/home/ada/.local/state/dovecote/push-token")
