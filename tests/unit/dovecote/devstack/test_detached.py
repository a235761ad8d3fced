import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovecote.devstack.detached import Member, StackState, default_directory, down, status, up
from dovecote.devstack.errors import StackError
from dovecote.devstack.places import is_reachable
from dovecote.devstack.postgres.postgres import server_user
from dovecote.devstack.processes import Process


def member(process: Process) -> Member:
    return Member(address="somewhere", server=process, keeper=process)


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = member(Process(1, "then"))
    state = StackState(directory=tmp_path / "data", members={"postgres": one, "kafka": one})

    state.write(tmp_path)

    assert StackState.read(tmp_path) == state
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_a_copy_of_a_stack_has_a_folder_and_servers_of_its_own(tmp_path: Path) -> None:
    me = Process.of(os.getpid())
    assert me is not None
    stack, copied, link = tmp_path / "stack", tmp_path / "copied", tmp_path / "link"
    stack.mkdir()
    link.symlink_to(stack)
    members = {"postgres": member(me), "kafka-1": member(me), "kafka-2": member(me)}
    state = StackState(directory=stack, members=members)
    state.write(stack)
    shutil.copytree(stack, copied)

    copy = StackState.read(copied)

    assert copy is not None
    assert copy.directory == copied
    assert not copy.running
    assert not down(copied)
    assert copy.brokers == state.brokers
    assert StackState.read(stack) == StackState.read(link) == state


def test_a_copy_of_a_stack_with_its_data_elsewhere_was_never_started(tmp_path: Path) -> None:
    me = Process.of(os.getpid())
    assert me is not None
    stack, copied, moved = tmp_path / "stack", tmp_path / "copied", tmp_path / "moved"
    stack.mkdir()
    state = StackState(directory=tmp_path / "elsewhere", members={"postgres": member(me)})
    state.write(stack)
    shutil.copytree(stack, copied)

    assert StackState.read(copied) is None
    assert StackState.read(stack) == state
    stack.rename(moved)
    assert StackState.read(moved) == state


def test_a_state_is_for_its_owners_eyes(tmp_path: Path) -> None:
    StackState(directory=tmp_path).write(tmp_path)

    assert (tmp_path / "state.json").stat().st_mode & 0o077 == 0


def test_where_nothing_was_started_there_is_no_state(tmp_path: Path) -> None:
    assert status(tmp_path) is None
    assert status(tmp_path / "none") is None
    assert not down(tmp_path / "none")


@pytest.mark.parametrize(
    "text", ["no JSON", "{}", "[]", '{"members": []}', '{"members": {"kafka": {"pid": 1}}}']
)
def test_a_file_that_is_no_state_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(StackError, match=r"state.json does not hold the state of a stack"):
        status(tmp_path)


def test_a_folder_that_cannot_be_used_is_named_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "state.json").mkdir()

    for asks in (status, down):
        with pytest.raises(StackError, match=r"cannot use .*/state\.json: Is a directory"):
            asks(tmp_path)
    with pytest.raises(StackError, match=r"cannot use .*/file: File exists.*--directory"):
        up(file)
    with pytest.raises(StackError, match=r"cannot use .*/file/state\.json: Not a directory"):
        status(file)


def test_a_current_folder_that_is_gone_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(StackError, match="cannot use one of its folders: No such file"):
        status(None)


def test_a_stack_runs_only_when_both_servers_do(tmp_path: Path) -> None:
    me = Process.of(os.getpid())
    assert me is not None
    gone = Process(me.pid, "at another time")

    def state(**members: Process) -> StackState:
        return StackState(
            directory=tmp_path,
            members={name: member(process) for name, process in members.items()},
        )

    assert state(postgres=me, kafka=me).running
    assert not state(postgres=me, kafka=gone).running
    assert not state(postgres=me).running


def test_a_process_that_was_given_the_id_of_a_server_is_not_ended(tmp_path: Path) -> None:
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as stranger:
        reused = member(Process(stranger.pid, "at another time"))
        StackState(directory=tmp_path, members={"postgres": reused}).write(tmp_path)

        assert not down(tmp_path)

        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.2)
        stranger.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as another")
def test_where_postgres_cannot_come_the_default_directory_lies_elsewhere(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    directory = default_directory(closed)

    try:
        assert not directory.is_relative_to(tmp_path)
        assert is_reachable(directory, server_user())
    finally:
        directory.rmdir()
