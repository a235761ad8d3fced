"""One log line per fact, on stderr, as text or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum


class LogFormat(StrEnum):
    """How a log line is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """Which messages are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure(form: LogFormat, level: LogLevel = LogLevel.INFO) -> logging.Logger:
    """Send the log of this process to stderr, and return its logger."""
    least = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(_Json() if form is LogFormat.JSON else text)
    # Libraries log warnings alone: Py4J has a message for each connection that it closes.
    logging.basicConfig(level=max(least, logging.WARNING), handlers=[handler], force=True)
    log = logging.getLogger("dovecote")
    log.setLevel(least)
    return log
