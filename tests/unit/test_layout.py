"""The tests and the packages lie where the house rules say."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import import_module, util
from pathlib import Path
from textwrap import dedent

import pytest

import dovecote
from tests import durations
from tests.support.documents import ROOT

MOST_MODULES, MOST_LINES = 15, 400

LONG = {
    "dovecote/audit/judging.py",  # verdicts
    "outbox/envelope.py",  # every header of a record
    "outbox/values.py",  # every form in JSON
    "relay/kafka/publisher.py",  # two publishers that share how they produce and wait
    "relay/operating/reconcile.py",  # one procedure
    "relay/postgres/capture/table.py",  # the capture from the table
    "relay/postgres/parked.py",  # the queries about parked events
    "relay/relay.py",  # the active relay
}
"""Modules that read better whole."""

SHARED = {"Migration"}
"""Names of several classes of a package: Django looks for each migration by this one."""

PUBLIC = ("dedup", "dovecote.devstack", "dovecote.push", "outbox")
"""Packages whose names users import."""

EAGER = (
    "dovecote.testing",
    "outbox.testing",
)
"""Packages whose names users import, and that import them at once."""

MODULES = ("dovecote.devstack.postgres", "outbox")
"""Packages with modules that users import."""


def sources(folder: str) -> list[Path]:
    return sorted(
        path for path in (ROOT / folder).rglob("*.py") if "old_schemas" not in path.parts
    )


def imported(text: str) -> list[tuple[str, str]]:
    """Return the module and the name of each `from … import …`."""
    return [
        (node.module or "", name.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    ]


def test_no_test_imports_another_one() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sources("tests")
        for module, name in imported(path.read_text(encoding="utf-8"))
        if module.startswith("tests.") and f"{module}.{name}".split(".")[-2].startswith("test_")
    ]
    assert found == []


@pytest.mark.parametrize("package", PUBLIC)
def test_what_a_package_exports_is_there_and_sorted(package: str) -> None:
    module = import_module(package)
    assert sorted(module.__all__) == module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert not hasattr(module, "Nothing")


@pytest.mark.parametrize("package", PUBLIC)
def test_a_name_that_is_imported_when_asked_for_is_what_a_checker_sees(package: str) -> None:
    path = ROOT / package.replace(".", "/") / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen, asked_for = [ast.unparse(each) for each in tree.body if isinstance(each, ast.If)]
    modules = ast.literal_eval(asked_for[asked_for.index("{") : asked_for.index("}") + 1])
    assert sorted(modules.items()) == sorted(
        (name, module) for module, name in imported(dedent(seen.partition("\n")[2]))
    )


def test_the_docs_import_what_is_public() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    found = []
    for page in pages:
        for block in page.read_text(encoding="utf-8").split("```python\n")[1:]:
            code = block.partition("```")[0].replace(">>> ", "").replace("... ", "")
            try:
                found += not_public(code, page)
            except SyntaxError:
                continue
    assert found == []


def test_the_programs_that_users_copy_import_what_is_public() -> None:
    programs = [each for name in ("bridges", "shop") for each in sources(f"examples/{name}")]
    assert len(programs) > 8
    assert [
        each for path in programs for each in not_public(path.read_text(encoding="utf-8"), path)
    ] == []


def not_public(code: str, where: Path) -> list[str]:
    """Return the imports from Dovecote of names that it does not export."""
    exported = {(name, each) for name in PUBLIC + EAGER for each in import_module(name).__all__}
    return [
        f"{where.name}: from {module} import {name}"
        for module, name in imported(code)
        if module.partition(".")[0] in {"dedup", "dovecote", "outbox", "relay", "spark_jobs"}
        and (module, name) not in exported
        and not is_module(module, name)
    ]


def is_module(module: str, name: str) -> bool:
    """Return whether it is a module that users import as a whole, or a name of one."""
    public = {"outbox.alembic", "outbox.envelope", "outbox.schema", "outbox.schema_registry"}
    public |= {"outbox.contracts", "outbox.kafka", "outbox.sqlalchemy", "outbox.tokens"}
    return (
        module in public
        or f"{module}.{name}" in public
        or (module, name) == ("dovecote.devstack.postgres", "volumes")
    )


def test_a_folder_has_about_a_dozen_modules() -> None:
    packages = ("outbox", "relay", "dedup", "spark_jobs", "dovecote", "proof")
    count = Counter(
        str(path.parent.relative_to(ROOT))
        for package in packages
        for path in sources(package)
        if path.name != "__init__.py" and path.parent.name != "migrations"
    )
    assert {folder: n for folder, n in count.items() if n > MOST_MODULES} == {}


def test_a_module_is_short_or_better_whole() -> None:
    packages = ("outbox", "relay", "dedup", "spark_jobs", "dovecote", "proof")
    found = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in sources(package)
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert found == LONG


# These are programs: each has names of its own, as the other packages do.
PARTS = sorted(f"dovecote/{each.name}" for each in (ROOT / "dovecote").iterdir() if each.is_dir())


@pytest.mark.parametrize("package", ["outbox", "relay", "dedup", "spark_jobs", *PARTS])
def test_a_class_has_a_name_of_its_own_in_its_package(package: str) -> None:
    places: dict[str, list[str]] = {}
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    found = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: found[name] for name in found.keys() - SHARED} == {}


def test_a_file_of_tests_is_short() -> None:
    # Workers take tests by the file, so a long one is the last to end as well as hard to read.
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sources("tests")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert found == {}


def test_files_of_tests_whose_duration_is_known_are_there() -> None:
    assert [file for file in durations.known() if not (ROOT / "tests" / file).exists()] == []


def test_a_wheel_takes_five_names_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["dedup", "dovecote", "outbox", "relay", "spark_jobs"]
    assert all((ROOT / package / "py.typed").exists() for package in packages)


@pytest.mark.parametrize("name", ["cli", "demo", "devstack", "push"])
def test_a_project_may_have_a_module_of_its_own_that_is_called_so(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text("def handle(event):\n    return None\n")
    run = (
        "from dedup.rules.policies.expressions import load_handler\n"
        "import dovecote.cli.main, dovecote.push, dovecote.demo, dovecote.devstack\n"
        f"load_handler('{name}:handle')\nimport {name}\nprint({name}.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / f"{name}.py")


def test_the_command_is_a_module_too() -> None:
    run = [sys.executable, "-m", "dovecote", "--version"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"dovecote {dovecote.__version__}"


SCRIPTS = sorted(
    path
    for path in (ROOT / "Makefile", *ROOT.glob(".ci/*"), *ROOT.glob("compose/*"))
    if path.is_file()
)


def taken(text: str) -> list[tuple[str, list[str]]]:
    """Return each module that a script runs or imports with `python`, and the names it takes."""
    imports = re.findall(r"-c '[^']*?from ([\w.]+) import ([\w, ]+)", text)
    runs = re.findall(r"""python3?["',]* ["']?-m["',]* ["']?([\w.]*\w)""", text)
    return [
        *((module, [name.split()[0] for name in names.split(",")]) for module, names in imports),
        *((module, []) for module in runs),
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_takes_only_what_exists(script: Path) -> None:
    for module, names in taken(script.read_text(encoding="utf-8")):
        if not (ROOT / module.partition(".")[0]).is_dir():
            continue  # another project's
        assert util.find_spec(module), f"no module {module}"
        for name in names:
            assert hasattr(import_module(module), name), f"no {name} in {module}"


def test_what_a_script_takes_is_found() -> None:
    line = (
        """RUN python -c 'from a.b import c as d, e; d()' && python3 -m f ["python", "-m", "h"]"""
    )
    assert taken(line) == [("a.b", ["c", "e"]), ("f", []), ("h", [])]
