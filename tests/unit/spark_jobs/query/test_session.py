"""The options for Java; and Spark's stderr is passed on if it means anything."""

from collections.abc import Mapping

import pytest

from outbox.secrets import Reread
from spark_jobs.query import session
from spark_jobs.query.configuring import configuration
from spark_jobs.query.session import open_session, worth_reporting
from spark_jobs.query.settings import SparkSettings

FRAMES = [
    b'  File "/x/pyspark.zip/pyspark/daemon.py", line 262, in manager\n',
    b'  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker\n',
]
BEGIN = b"Traceback (most recent call last):\n"
DISMISSED = [BEGIN, *FRAMES, b"BrokenPipeError: [Errno 32] Broken pipe\n"]
FAILED = [BEGIN, b'  File "/x/handlers.py", line 3, in handle\n', b"ValueError: no\n"]


def test_goodbyes_of_workers_are_left_out_and_errors_are_not() -> None:
    said = [b"WARNING: Using incubator modules: x\n", *DISMISSED, *FAILED, b"INFO x\n"]

    assert list(worth_reporting(said)) == [*FAILED, b"INFO x\n"]


def test_a_goodbye_that_is_cut_off_is_left_out() -> None:
    assert list(worth_reporting([b"INFO x\n", BEGIN])) == [b"INFO x\n"]
    assert list(worth_reporting(FAILED[:2])) == FAILED[:2]


def test_workers_may_say_goodbye_at_once() -> None:
    both = [line for pair in zip(DISMISSED, DISMISSED, strict=True) for line in pair]

    assert list(worth_reporting([*both, *FAILED])) == FAILED


def test_a_planner_may_say_goodbye_while_it_says_goodbye() -> None:
    frame = (
        b'  File "/x/pyspark/sql/streaming/python_streaming_source_runner.py", line 314, in main\n'
    )
    broken = b"BrokenPipeError: [Errno 32] Broken pipe\n"
    chained = b"During handling of the above exception, another exception occurred:\n"
    said = [BEGIN, frame, b"    write()\n", broken, b"\n", chained, b"\n", BEGIN, frame, broken]
    cut_off = [BEGIN, frame, b"EOFError\n", b"\n", chained, b"\n", *said[:-1]]
    other = [BEGIN, frame, b"ValueError: no\n", b"\n", chained, b"\n", BEGIN, frame, broken]

    assert list(worth_reporting([*said, b"INFO x\n"])) == [b"INFO x\n"]
    assert list(worth_reporting([*said, *FAILED])) == FAILED
    assert list(worth_reporting(cut_off)) == []
    assert list(worth_reporting([*other, b"INFO x\n"])) == [*other, b"INFO x\n"]


def options(master: str | None = "local[2]", **conf: str) -> list[str]:
    """Return the options of the driver's Java."""
    given = {f"spark.driver.{name}": value for name, value in conf.items()}
    settings = SparkSettings(query="q", checkpoint="c", conf=given)
    found = configuration(settings, master=master)
    names = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
    return " ".join(found.get(name, "") for name in names).split()


def collectors(master: str | None = "local[2]", **conf: str) -> int:
    return sum("GC" in option for option in options(master, **conf))


def compilers(master: str | None = "local[2]", **conf: str) -> int:
    """Count our options about Java's compilation."""
    return sum(option.startswith("-XX:Tier4") for option in options(master, **conf))


@pytest.fixture(autouse=True)
def _nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("name", ["defaultJavaOptions", "extraJavaOptions"])
def test_java_is_asked_for_one_garbage_collector_whoever_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert collectors() == 1
    assert collectors(**{name: "-Xss4m"}) == 1
    assert collectors(**{name: "-XX:+UseSerialGC -Xss4m"}) == 1
    assert collectors(None) == 0
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseZGC")
    assert collectors() == 0


@pytest.mark.parametrize("name", ["defaultJavaOptions", "extraJavaOptions"])
def test_who_chooses_how_java_compiles_is_listened_to(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert compilers() > 0
    assert compilers(**{name: "-Xss4m -XX:+UseSerialGC"}) > 0
    assert compilers(**{name: "-XX:TieredStopAtLevel=1"}) == 0
    assert compilers(**{name: "-XX:-TieredCompilation"}) == 0
    assert compilers(None) == 0
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+TieredCompilation")
    assert compilers() == 0


def test_a_secret_is_not_on_the_command_line_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    def launch(conf: Mapping[str, str]) -> None:
        seen.update(conf)
        raise _Launched

    monkeypatch.setattr(session, "_launch", launch)
    conf = {
        "spark.master": "local[1]",
        "spark.hadoop.fs.s3a.secret.key": "one",
        "spark.hadoop.x": Reread(lambda *, anew: "two"),  # noqa: ARG005  # as a secret is read
        "spark.hadoop.fs.s3a.access.key": "three",
    }

    with pytest.raises(_Launched):
        open_session(conf)

    assert seen == {"spark.master": "local[1]", "spark.hadoop.fs.s3a.access.key": "three"}


class _Launched(Exception):
    """Stops before there is a Java."""
