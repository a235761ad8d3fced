"""If an archive of classes can be made, Java is asked for one until it exists."""

from pathlib import Path

from dovecote.devstack.kafka.class_archive import ClassArchive
from dovecote.devstack.kafka.java import JavaRuntime


def java(home: Path, *, own_archive: bool) -> JavaRuntime:
    for folder in ("bin", "lib/server"):
        (home / folder).mkdir(parents=True)
    (home / "bin/java").touch()
    if own_archive:
        (home / "lib/server/classes.jsa").touch()
    return JavaRuntime(home / "bin/java", home)


def test_an_archive_is_asked_for_until_one_is_kept(tmp_path: Path) -> None:
    archive = ClassArchive(java(tmp_path / "java", own_archive=True), tmp_path)
    assert archive.is_wanted
    assert archive.options() == []
    left = tmp_path / "server" / "classes.jsa"
    left.parent.mkdir()
    assert f"-XX:ArchiveClassesAtExit={left}" in archive.options_of_server(left.parent)

    archive.keep(left.parent)
    assert archive.is_wanted

    left.write_bytes(b"classes")
    archive.keep(left.parent)

    [kept] = tmp_path.glob("*.jsa")
    assert kept.read_bytes() == b"classes"
    assert not left.exists()
    assert not archive.is_wanted
    assert archive.options_of_server(left.parent) == [f"-XX:SharedArchiveFile={kept}"]


def test_what_a_killed_server_left_is_not_kept(tmp_path: Path) -> None:
    archive = ClassArchive(java(tmp_path / "java", own_archive=True), tmp_path / "jars")
    (tmp_path / "classes.jsa").write_bytes(b"half of them")

    archive.discard(tmp_path)
    archive.keep(tmp_path)

    assert archive.is_wanted


def test_a_java_without_its_own_archive_is_asked_for_none(tmp_path: Path) -> None:
    archive = ClassArchive(java(tmp_path / "java", own_archive=False), tmp_path)

    assert not archive.is_wanted
    assert archive.options_of_server(tmp_path) == []
