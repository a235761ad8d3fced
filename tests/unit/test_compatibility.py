"""The page about versions says what ran, and `pyproject.toml` promises no more."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from dovecote.devstack.versions import KAFKA, POSTGRES
from tests.matrix import page
from tests.matrix.corners import CORNERS, QUICK, Corner, Packages
from tests.matrix.environments import extras_varied, name_of
from tests.matrix.running import Ran, counted
from tests.support.documents import ROOT

RAN = {each.corner: each for each in page.noted()}


def test_the_page_says_what_ran() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.noted())


def test_every_corner_was_run_and_nothing_failed() -> None:
    assert list(RAN) == [corner.name for corner in CORNERS]
    assert [each.corner for each in RAN.values() if each.failed or each.failures] == []


def test_every_version_of_the_stack_was_run() -> None:
    ran = [each for each in RAN.values() if each.passed]
    assert {each.postgres for each in ran} == set(POSTGRES.revisions.values())
    assert {each.kafka for each in ran} == set(KAFKA.revisions.values())


def test_a_lower_bound_is_a_version_that_was_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"oldest": [*project["dependencies"]], "spark-oldest": []}
    for extra in extras_varied():
        needed = project["optional-dependencies"][extra]
        wanted["spark-oldest" if extra == "spark" else "oldest"] += needed

    for corner, requirements in wanted.items():
        ran = RAN[corner].versions
        if RAN[corner].lacking:  # the page says so
            continue
        for requirement in map(Requirement, requirements):
            if requirement.name == "dovecote":
                continue
            bounds = [each for each in requirement.specifier if each.operator in {">=", "=="}]
            assert len(bounds) == 1, requirement
            # A part of 4.1 stands for its newest revision.
            found, bound = ran[name_of(requirement.name)], Version(bounds[0].version)
            assert Version(found).release[: len(bound.release)] == bound.release, requirement


def test_the_oldest_python_was_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = min((each.python for each in RAN.values() if each.passed), key=Version)
    assert f">={oldest.rpartition('.')[0]}" == project["requires-python"]


@pytest.mark.parametrize("corner", [*CORNERS, *QUICK], ids=lambda corner: corner.name)
def test_a_corner_names_files_and_versions_that_are_there(corner: Corner) -> None:
    for test in corner.tests:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / "tests" / file).read_text(), test
    assert corner.postgres in POSTGRES.revisions
    assert corner.kafka in KAFKA.revisions
    assert len(set(corner.tests)) == len(corner.tests)


def test_ci_runs_the_oldest_servers_and_packages() -> None:
    (quick,) = QUICK
    assert quick.packages is Packages.OLDEST
    assert [quick.postgres, quick.kafka] == [
        next(iter(POSTGRES.revisions)),
        next(iter(KAFKA.revisions)),
    ]
    assert "make matrix ARGS=--quick" in (ROOT / ".ci/run").read_text()


def ran(name: str, **fields: object) -> Ran:
    told = {"postgres": "15.19.0", "kafka": "3.9.1", "python": "3.12.1", "packages": "locked"}
    return Ran(**{**told, "corner": name, **fields})  # type: ignore[arg-type]


def test_the_table_shows_what_ran_and_what_could_not() -> None:
    one = ran("one", tests="few", passed=10, skipped=1, seconds=7)
    other = ran("other", python="3.14", lacking="no interpreter found for Python 3.14")

    table = page.table([one, other])

    assert "| 3.12.1 | locked   | —       | few   | 10      | 1       | 0      | 7" in table
    assert "| 3.14   | locked   | —       | all   | not run |         |        |" in table
    assert "* `other` did not run: no interpreter found for Python 3.14" in page.page([one, other])


def test_what_did_not_run_or_failed_counts_for_no_version() -> None:
    shown = page.page(
        [
            ran("one", passed=1, versions={"psycopg": "3.2.13"}),
            ran("two", passed=1, postgres="18.4", versions={"psycopg": "3.10.0"}),
            ran("bad", postgres="14.20.0", passed=1, failed=1),
            ran("none", postgres="14.20.0", lacking="it is not there"),
        ]
    )

    assert "| PostgreSQL | 15.19.0 | 18.4 |" in shown
    assert "| psycopg | 3.2.13 | 3.10.0 |" in shown


def test_a_report_is_counted_by_what_became_of_each_test(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="a" name="good"/>'
        '<testcase classname="a" name="left"><skipped/></testcase>'
        '<testcase classname="a" name="bad"><failure/></testcase>'
        '<testcase classname="a" name="worse"><error/></testcase>'
        "</testsuite></testsuites>"
    )

    found, failures = counted(report)

    assert dict(found) == {"passed": 1, "skipped": 1, "failed": 2}
    assert failures == ("a::bad", "a::worse")
    assert counted(tmp_path / "none") == ({"passed": 0, "skipped": 0, "failed": 0}, ())
