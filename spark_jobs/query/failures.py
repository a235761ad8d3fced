"""Find, in what Spark says of a failure, the error of our own or the line that names the cause."""

import logging
import re

from spark_jobs.errors import REPORTED, JobError, QueryFailed

_log = logging.getLogger("dovecote.spark")

_MESSAGE_CHARACTERS = 1_000
_OURS = re.compile(r"^spark_jobs\.errors\.(\w+): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^Traceback|: Traceback \(most recent call last\)", re.MULTILINE)
# The exception is followed by Spark's own description of the query, and Java's stack.
_AFTER = re.compile(r"^(=== Streaming Query|\s*SQLSTATE|\s*at |Driver stacktrace)", re.MULTILINE)


def failure(text: str) -> JobError:
    """Return the error that made Spark give up; Spark's stack traces go to the log."""
    _log.error("Spark ended a query; this is what it says:", extra={"details": text})
    if (ours := _OURS.search(text)) is not None:
        return REPORTED.get(ours[1], QueryFailed)(ours[2])
    if (python := _PYTHON.search(text)) is not None:
        raised = text[python.end() :]
        after = _AFTER.search(raised)
        lines = [
            line
            for line in raised[: after.start() if after else len(raised)].splitlines()
            if line and not line[0].isspace()
        ]
        # The last line without indentation is the exception; the lines above it show its origin.
        return QueryFailed(f"a task failed: {lines[-1] if lines else text}"[:_MESSAGE_CHARACTERS])
    return QueryFailed(f"Spark ended the query: {text.splitlines()[0]}"[:_MESSAGE_CHARACTERS])
