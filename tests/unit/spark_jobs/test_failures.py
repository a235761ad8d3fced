"""A failure of Spark, in a line that tells what to do."""

import pytest

from spark_jobs.errors import QueryFailed, SourceChanged
from spark_jobs.failures import failure

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
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple jobs detected.",
            "another run of this query uses the same checkpoint: end one of the two",
        ),
        ("x: spark_jobs.errors.SourceChanged: offsets 3 to 7 are deleted", "offsets 3 to 7"),
    ],
)
def test_causes_that_spark_does_not_explain_are_said_with_what_helps(said: str, told: str) -> None:
    assert told in str(failure(TASK.replace("ValueError: it is odd", said)))


NO_PYTHON = """\
[STREAM_FAILED] Query [id = 6cfa] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] \
An error occurred in the user provided function in foreach batch sink. Return Message: Traceback \
(most recent call last):
  File "java_gateway.py", line 1, in call
py4j.protocol.Py4JJavaError: An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed \
4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.2 executor 0): {cause}
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""


def test_a_python_that_is_not_there_is_told_with_what_sets_it() -> None:
    cause = 'java.io.IOException: Cannot run program "/opt/nowhere/python3": error=2, No such file'

    found = str(failure(NO_PYTHON.format(cause=cause)))

    assert 'Cannot run program "/opt/nowhere/python3": error=2' in found
    assert "set spark.pyspark.python" in found


def test_the_most_recent_failure_of_a_task_is_told_if_it_is_javas() -> None:
    cause = "java.io.IOException: No space left on device"

    assert str(failure(NO_PYTHON.format(cause=cause))) == f"a task failed: {cause}"


def test_state_that_is_not_there_is_told_with_where_it_should_be() -> None:
    cause = (
        "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE."
        "CANNOT_READ_STREAMING_STATE_FILE] Error reading streaming state file file:/c/state/1"
    )

    found = str(failure(NO_PYTHON.format(cause=cause)))

    assert "on a disk that not all machines share" in found
    assert "/c/state/1" in found


def test_an_exception_of_java_is_told_with_its_last_cause() -> None:
    text = (
        "An error occurred while calling o55.start.\n"
        ": org.apache.spark.SparkException: it failed\n\tat x.Y\n"
        "Caused by: java.io.IOException: why\n\tat x.Z\n"
        "Caused by: java.net.ConnectException: Connection refused\n\tat x.A\n"
    )

    assert str(failure(text)) == (
        "Spark ended the query: org.apache.spark.SparkException: it failed "
        "(java.net.ConnectException: Connection refused)"
    )
