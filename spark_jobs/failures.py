"""Find, in what Spark says of a failure, the error of our own or the line that names the cause."""

import logging
import re
from collections.abc import Iterator

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from spark_jobs.errors import REPORTED, JobError, QueryFailed

_log = logging.getLogger("dovecote.spark")

SPARKS = (Py4JError, PySparkException)
"""The exceptions of Spark, and of Java below it."""

_MESSAGE_CHARACTERS = 1_000
_OURS = re.compile(r"(?:^|: )spark_jobs\.errors\.(\w+): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^Traceback|: Traceback \(most recent call last\)", re.MULTILINE)
# The exception is followed by Spark's own description of the query, and Java's stack.
_AFTER = re.compile(
    r"^(=== Streaming Query|\s*SQLSTATE|\s+at [\w.$/<>@]+(\(|$)|Driver stacktrace)", re.MULTILINE
)
_FRAME = re.compile(r'^ +File ".*$', re.MULTILINE)
_SAYS_NOTHING = (
    "Traceback",
    "During handling",
    "The above exception",
    "An error occurred while calling",
    "  ",
    "\t",
)
_LOST = re.compile(r"most recent failure: Lost task [^\n]*?\([^()]*executor[^()]*\): ([^\n]+)")
_CAUSED = re.compile(r"^Caused by: ([^\n]+)", re.MULTILINE)
_SPARKS_OWN, _TWICE = "Spark ended the query: ", "another run of this query"
_CAUSES = (
    (
        re.compile(r"Python worker exited unexpectedly|Python worker (?:was )?killed"),
        (
            "a Python worker was killed or crashed: mostly the machine or the container had too "
            "little memory (see the kernel's log), or a library of the handler crashed. The batch "
            "comes again with the next start; smaller ones need less "
            "(source.max_offsets_per_trigger)"
        ),
    ),
    (
        re.compile(r"Cannot run program \"[^\"]*python[^\"]*\"[^\n]*"),
        (
            "{found}: set spark.pyspark.python (executors) or spark.pyspark.driver.python to a "
            "Python that is there, on every machine"
        ),
    ),
    (
        re.compile(r"\[(?:CANNOT_LOAD_STATE_STORE\.)?CANNOT_READ_STREAMING_STATE_FILE\][^\n]*"),
        (
            "{found} An executor does not find a file of the state: either spark.checkpoint is "
            "on a disk that not all machines share, or files were removed. In the first case give "
            "the job a new checkpoint in a place that all share, and run it once with --adopt"
        ),
    ),
    (
        re.compile(
            r"(?:ClassNotFoundException: Class (\S+FileSystem) not found|"
            r"No FileSystem for scheme \"?\w+\"?)[^\n]*"
        ),
        (
            "{found}: the jar of that file system is missing; give it to spark-submit with "
            "--packages or --jars, or locally in spark.conf as spark.jars.packages or spark.jars"
        ),
    ),
    (
        re.compile(r"\[PYTHON_VERSION_MISMATCH\][^\n]*"),
        "{found} Set PYSPARK_PYTHON on all machines to the version of Python that starts the job",
    ),
    (
        re.compile(r"\[CONCURRENT_STREAM_LOG_UPDATE\][^\n]*"),
        (
            f"{_TWICE} uses the same checkpoint: end one of the two, and start the other again "
            "({found})"
        ),
    ),
)


def failure(text: str) -> JobError:
    """Return the error that made Spark give up; Spark's stack traces go to the log."""
    _log.error("Spark ended a query; this is what it says:", extra={"details": text})
    if (ours := _OURS.search(text)) is not None:
        return REPORTED.get(ours[1], QueryFailed)(ours[2])
    for pattern, said in _CAUSES:
        if (found := pattern.search(text)) is not None:
            return QueryFailed(said.format(found=found[0]))
    lost = _LOST.search(text)
    if lost is not None and _PYTHON.search(lost[0]) is None:
        return QueryFailed(f"a task failed: {lost[1]}"[:_MESSAGE_CHARACTERS])
    if (python := _PYTHON.search(text)) is not None:
        raised = text[python.end() :]
        after = _AFTER.search(raised)
        if said := _exception(raised[: after.start() if after else len(raised)]):
            return QueryFailed(f"a task failed: {said}"[:_MESSAGE_CHARACTERS])
    first = next(_telling(text.splitlines()), "it says nothing of the cause; see the log above")
    causes = [each for each in _CAUSED.findall(text) if each not in first]
    why = f" ({causes[-1]})" if causes else ""
    return QueryFailed(f"{_SPARKS_OWN}{first}{why}"[:_MESSAGE_CHARACTERS])


def may_be_a_records(error: JobError) -> bool:
    """Return whether a record may be to blame: it is not if Spark fails outside of the tasks."""
    return type(error) is QueryFailed and not str(error).startswith((_SPARKS_OWN, _TWICE))


def told(error: BaseException) -> JobError:
    """Return an exception of Spark as an error of ours; only a Java that runs has its text."""
    return error if isinstance(error, JobError) else failure(str(error))


def _exception(traceback: str) -> str:
    """Return the exception at the end of a traceback: what follows its last frame, on one line."""
    frames = [*_FRAME.finditer(traceback)]
    lines = traceback[frames[-1].end() if frames else 0 :].splitlines()
    while frames and lines and not (lines[0] and not lines[0][0].isspace()):
        del lines[0]  # the source of the frame, and marks under it
    if not frames:
        lines = [line for line in lines[1:] if line and not line[0].isspace()][-1:]
    return " ".join(line.strip() for line in lines if line.strip())


def _telling(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.strip() and not line.startswith(_SAYS_NOTHING):
            bare = re.sub(r":?\s*Traceback \(most recent call last\):?$", "", line)
            yield bare.removeprefix(": ")
