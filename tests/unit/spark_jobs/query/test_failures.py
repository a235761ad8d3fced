"""A failure of Spark, in a line that tells what to do."""

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
