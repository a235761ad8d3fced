"""The wheel with each extra: what loads with it, and what is said of everything else."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg
import pytest

from dovecote.cli.extras import EXTRAS
from outbox import schema
from tests.support.environments import Environment, built, environment, needed, unpacked

Make = Callable[[str], Environment]

PACKAGES = {
    "": ["outbox", "dovecote.cli.init"],
    "producer": ["outbox.producer", "outbox.kafka_errors"],
    "relay": ["relay", "dovecote.process", "dovecote.cli.relay"],
    "consume": [
        *("dedup", "dovecote.observe", "dovecote.audit", "dovecote.cli.consume"),
        *(f"dovecote.cli.{name}" for name in ("topic", "dead", "find", "audit")),
    ],
    "push": ["dovecote.push", "dovecote.cli.push", "dovecote.console", "dovecote.cli.console"],
    "spark": ["spark_jobs", "dovecote.cli.spark"],
    "stack": ["dovecote.devstack"],
    "demo": ["dovecote.demo"],
    "contracts": ["dovecote.contracts", "dovecote.cli.contracts"],
}
"""Every module of these packages loads with the extra."""

OTHERS = {
    "": {
        "outbox.testing.asyncpg",
        "outbox.testing.sqlalchemy",
        "outbox.sqlalchemy",
        "outbox.tokens.polled",
        "outbox.tokens.source",
        "outbox.producer",
        "outbox.kafka_errors",
        "outbox.django",
        "outbox.alembic",
    }
    | {f"outbox.writing.{name}" for name in ("asyncpg", "django", "sqlalchemy")}
    | {"dovecote.cli.init.group", "outbox.tracing.spans", "outbox.tracing.creating"},
    "consume": {"dedup.tracing.consuming", "dedup.tracing.handling"},
    "push": {"dovecote.push.delivery.tracing"},
    "spark": {"dovecote.cli.spark.environment"},
}
"""Packages and modules below these that another extra brings."""

WALK = """
import json, sys
from importlib import import_module
from pkgutil import walk_packages
packages, others = json.load(sys.stdin)
failed, seen = {}, 0
def load(name):
    global seen
    seen += 1
    try:
        return import_module(name)
    except ImportError as error:
        failed[name] = str(error)
def walk(name):
    if any(name == other or name.startswith(other + ".") for other in others):
        return
    module = load(name)
    for each in walk_packages(getattr(module, "__path__", []), name + "."):
        if each.name.count(".") == name.count(".") + 1:
            walk(each.name)
for package in packages:
    walk(package)
print(json.dumps([seen, failed]))
"""

COMMANDS = """
import json
from typing import Any
from typer.core import TyperGroup
from typer.main import get_command
from dovecote.cli.main import app
def walk(command, words=()):
    if isinstance(command, TyperGroup):
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), (*words, name))
    else:
        yield " ".join(words), getattr(command, "_advice", None)
print(json.dumps(dict(walk(get_command(app)))))
"""


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes the environment of an extra, once."""
    folder = tmp_path_factory.mktemp("wheel")
    ours = unpacked(built(folder), folder / "ours")
    known: dict[str, Environment] = {}

    def made(extra: str) -> Environment:
        if extra not in known:
            known[extra] = environment(folder / (extra or "base"), ours, extra)
        return known[extra]

    return made


@pytest.mark.parametrize("extra", PACKAGES, ids=lambda extra: extra or "base")
def test_all_that_an_extra_is_for_loads_with_it_alone(make: Make, extra: str) -> None:
    asked = json.dumps([PACKAGES[extra], sorted(OTHERS.get(extra, ()))])
    done = make(extra).run("-c", WALK, given=asked)
    assert done.returncode == 0, done.stderr
    seen, failed = json.loads(done.stdout)
    assert failed == {}
    assert seen >= len(PACKAGES[extra])


def test_pytest_finds_the_fixtures_by_an_entry_point(make: Make) -> None:
    code = (
        "import sys\n"
        "from importlib.metadata import entry_points\n"
        "(found,) = entry_points(group='pytest11', name='dovecote')\n"
        "print(found.value)"
    )
    assert make("").run("-c", code).stdout.strip() == "dovecote.testing.plugin"


def test_the_base_is_psycopg_and_what_makes_ids() -> None:
    assert needed("") - {"typing-extensions"} == {"psycopg", "psycopg-binary", "uuid-utils"}


def test_an_import_of_the_outbox_loads_the_driver_and_nothing_else_of_others(make: Make) -> None:
    code = (
        "import sys, outbox, outbox.schema, dedup, relay, dovecote\n"
        "known = {*sys.stdlib_module_names, 'outbox', 'dedup', 'relay', 'dovecote', '__main__'}\n"
        "real = {name for name, each in sys.modules.items() if getattr(each, '__spec__', None)}\n"
        "found = {name.partition('.')[0] for name in real if not name.startswith('_')}\n"
        "print(*sorted(found - known))"
    )
    loaded = set(make("push").run("-c", code).stdout.split())
    assert loaded - {"psycopg_binary", "typing_extensions"} == {"psycopg", "uuid_utils"}


def test_the_base_installs_the_outbox_and_writes_to_it(make: Make, database: str) -> None:
    base = make("")
    done = base.dovecote("init", "outbox", "--writer-role", "pg_monitor", DOVECOTE_DSN=database)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:-1] == ["granted pg_monitor what a writer needs"]
    write = (
        "import sys, psycopg\nfrom outbox import Event, write\n"
        "with psycopg.connect(sys.argv[1]) as conn:\n"
        "    write(conn, Event(topic='orders', type='OrderPlaced', value={'order': 42}))\n"
    )
    done = base.run("-c", write, database)
    assert (done.returncode, done.stderr) == (0, "")
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM outbox.events").fetchall() == [(1,)]


def test_the_base_prints_the_sql_of_all_parts(make: Make) -> None:
    done = make("").dovecote("init", "outbox", "--print-sql")
    assert (done.returncode, done.stdout) == (0, schema.script())
    for part in ("inbox", "push"):
        done = make("").dovecote("init", part, "--print-sql")
        assert done.returncode == 0
        assert "CREATE TABLE" in done.stdout


@pytest.mark.parametrize("name", [name for name, extra in EXTRAS.items() if extra])
def test_a_command_that_the_base_lacks_says_in_one_line_what_to_install(
    make: Make, name: str
) -> None:
    for more in ([], ["--help"], ["run", "--config", "some.toml"]):
        done = make("").dovecote(name, *more)
        said = f"dovecote: dovecote {name} needs typer: pip install 'dovecote[{EXTRAS[name]}]'\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nothing", "no such command: 'nothing'; see `dovecote --help`"),
        ("init", ""),
        ("", ""),
        ("init nothing", "no such command: 'init nothing'; see `dovecote --help`"),
        ("init outbox --since x", "argument --since: 'x' is not a number; see `dovecote init ou"),
        ("init outbox --since -1", "argument --since: -1 is less than 0; see `dovecote init ou"),
        ("init outbox --capture log", "argument --capture: 'log' is not one of 'table', 'wal'; "),
        ("init outbox --nothing", "unrecognized arguments: --nothing; see `dovecote init outbox"),
        ("init outbox --dsn", "argument --dsn: expected one argument; see `dovecote init outbox"),
        ("init outbox --dsn x", "--dsn or DOVECOTE_DSN: libpq cannot read this connection string"),
    ],
)
def test_bad_usage_of_the_base_is_one_line_and_status_2(make: Make, words: str, said: str) -> None:
    done = make("").dovecote(*words.split())
    assert done.returncode == 2
    if said:
        assert done.stderr.startswith(f"dovecote: {said}")
        assert done.stderr.count("\n") == 1
    else:
        assert "pip install 'dovecote[relay]'" in done.stdout


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("outbox", "Producer", "producer"),
        ("dedup", "Consumer", "consume"),
        ("dovecote.push", "signing_key", "push"),
        ("dovecote.devstack", "Stack", "stack"),
    ],
)
def test_a_name_that_the_base_lacks_says_what_to_install(
    make: Make, package: str, name: str, extra: str
) -> None:
    done = make("").run("-c", f"from {package} import {name}")
    said = rf"ModuleNotFoundError: {package}\.{name} needs \w+: pip install 'dovecote\[{extra}\]'"
    assert re.fullmatch(said, done.stderr.splitlines()[-1])


@pytest.mark.parametrize("extra", ["relay", "consume", "push", "spark", "stack", "demo"])
def test_the_commands_of_an_extra_are_there_and_each_other_one_says_what_to_install(
    make: Make, extra: str
) -> None:
    done = make(extra).run("-c", COMMANDS)
    assert done.returncode == 0, done.stderr
    advised: Mapping[str, str | None] = json.loads(done.stdout)
    for command, advice in advised.items():
        group = command.partition(" ")[0]
        wanted = EXTRAS[group]
        if wanted is None or needed(wanted) <= needed(extra):
            assert advice is None, command
        elif advice is not None:
            assert advice.startswith(f"dovecote {command} needs "), command
            assert advice.endswith(f": pip install 'dovecote[{wanted}]'"), command
    shown = make(extra).dovecote("--help").stdout
    assert [group for group in EXTRAS if f"\n  {group} " not in shown] == []


def test_a_command_whose_extra_is_missing_says_so_whatever_is_asked(make: Make) -> None:
    said = "dovecote: dovecote consume run needs {}: pip install 'dovecote[consume]'\n"
    for more in (["--config", "some.toml"], ["--help"]):
        done = make("relay").dovecote("consume", "run", *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr in {said.format("starlark"), said.format("msgspec")}
    # A mistyped command is answered as ever, though some of the others are missing.
    done = make("relay").dovecote("relay", "statsu")
    assert done.stderr.endswith("Did you mean `dovecote relay status`?\n")


def test_what_a_command_loads_later_is_advised_too(make: Make, tmp_path: Path) -> None:
    file, step = tmp_path / "some.toml", tmp_path / "step.yaml"
    file.write_text('name = "x"\n', encoding="utf-8")
    step.write_text("name: x\n", encoding="utf-8")
    for extra, words, wanted in (
        ("relay", ["push", "serve"], "push"),
        ("relay", ["replay", "exact", "--config", str(file)], "consume"),
        ("consume", ["replay", "aggregation", "--config", str(step)], "spark"),
        ("relay", ["stack", "up"], "stack"),
        ("relay", ["demo"], "demo"),
        ("stack", ["demo"], "demo"),
    ):
        done = make(extra).dovecote(*words, HOME=str(tmp_path))
        assert done.returncode == 2, (words, done)
        assert done.stderr.count("\n") == 1, (words, done)
        assert done.stderr.endswith(f": pip install 'dovecote[{wanted}]'\n"), (words, done)
