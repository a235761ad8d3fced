"""A failure of Spark, in a line that tells what to do."""

import pytest

from spark_jobs.errors import QueryFailed, SourceChanged
from spark_jobs.query.failures import failure

PLANNER = """\
[STREAM_FAILED] Query [id = 6cfa] terminated with exception: [PYTHON_STREAMING] Failed \
when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 281, in main
  File "stream.py", line 86, in latestOffset
    offsets.require_same(read, latest)
{raised}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: q [id = 6cfa]

Logical Plan:
+- ~StreamingDataSourceV2ScanRelation[planned#51] dovecote"""
TASK = """\
An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ValueError: it is odd

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
\tat java.base/java.lang.Thread.run(Thread.java:1583)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler"""


def test_an_error_of_ours_in_the_planner_is_raised_as_it_was() -> None:
    found = failure(PLANNER.format(raised="spark_jobs.errors.SourceChanged: topic t is gone"))

    assert type(found) is SourceChanged
    assert str(found) == "topic t is gone"


def test_another_error_in_the_planner_is_told_by_its_last_line() -> None:
    found = failure(PLANNER.format(raised="ValueError: it is odd"))

    assert type(found) is QueryFailed
    assert str(found) == "a task failed: ValueError: it is odd"


def test_an_error_in_a_task_is_told_without_javas_stack() -> None:
    assert str(failure(TASK)) == "a task failed: ValueError: it is odd"


def test_an_error_of_sparks_own_is_told_by_its_first_line() -> None:
    assert str(failure("no disk\nand so on")) == "Spark ended the query: no disk"


CHAINED = """\
Job aborted due to stage failure: Task 0 in stage 1.0 failed: PythonException: Traceback (most \
recent call last):
  File "worker.py", line 1, in main
    process()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 2, in main
    at (x)
OverflowError: it is large,
and the text goes on

\tat org.apache.spark.api.python.BasePythonRunner.handle(Runner.scala:1)
"""


def test_an_exception_of_several_lines_is_told_as_a_whole() -> None:
    assert (
        str(failure(CHAINED)) == "a task failed: OverflowError: it is large, and the text goes on"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "[STREAM_FAILED] Job aborted: Traceback (most recent call last):",
        'Traceback (most recent call last):\n  File "x.py", line 1\n    run()\n\tat a.B(C.java:1)',
        "\n\nTraceback (most recent call last):\n\n",
        "",
    ],
)
def test_no_last_line_is_the_beginning_of_a_traceback(text: str) -> None:
    assert "Traceback" not in str(failure(text))
    assert str(failure(text)).startswith("Spark ended the query: ")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Python worker exited unexpectedly (crashed)", "a Python worker was killed or crashed"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has a different version: 3.12 than 3.11.",
            "than 3.11. Set PYSPARK_PYTHON on all machines",
        ),
        ("x: spark_jobs.errors.SourceChanged: offsets 3 to 7 are deleted", "offsets 3 to 7"),
    ],
)
def test_causes_that_spark_does_not_explain_are_said_with_what_helps(said: str, told: str) -> None:
    assert told in str(failure(TASK.replace("ValueError: it is odd", said)))
