"""Ask sources side by side, each within its time, and say which of them did not answer."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from confluent_kafka import KafkaException
from psycopg import Error as PostgresError

from dovecote.observe.find.rules.life import PartFailure
from outbox.errors import DovecoteError, first_line

T = TypeVar("T")

# More threads than these would only wait for each other.
_MOST_AT_ONCE = 16


Question: TypeAlias = tuple[str, str]
"""The name of a part, and what it is asked for: `its inbox`."""


class Answers(NamedTuple, Generic[T]):
    """The answers, and the failures of those that did not answer."""

    found: dict[Question, T]
    failures: list[PartFailure]


def ask(questions: Mapping[Question, Callable[[], T]], seconds: float) -> Answers[T]:
    """
    Return the answers to questions.

    A question without an answer after `seconds` is left alone: its thread ends with its own
    timeouts, and keeps no process alive.
    """
    if not questions:
        return Answers({}, [])
    turns = threading.Semaphore(_MOST_AT_ONCE)
    found: dict[Question, T] = {}
    failed: dict[Question, str] = {}

    def answer(name: Question, question: Callable[[], T]) -> None:
        with turns:
            try:
                found[name] = question()
            except Exception as error:  # noqa: BLE001  # said beside what others answer
                failed[name] = told(error)

    threads = {
        name: threading.Thread(target=answer, args=each, name=f"find {name[0]}", daemon=True)
        for name, each in ((name, (name, question)) for name, question in questions.items())
    }
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + seconds
    for name, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            failed.setdefault(name, f"it did not answer within {seconds:g} s")
    # A late thread may still write: what is returned stays as it is.
    answers = {name: answer for name, answer in list(found.items()) if name not in failed}
    failures = [
        PartFailure(part, f"{what}: {failed[part, what]}" if what else failed[part, what])
        for part, what in questions
        if (part, what) in failed
    ]
    return Answers(answers, failures)


def told(error: Exception) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, KafkaException):
        return f"Kafka: {error.args[0].str()}"
    if isinstance(error, PostgresError):
        return f"Postgres: {first_line(error)}"
    if isinstance(error, DovecoteError | OSError):
        return first_line(error)
    return f"{type(error).__name__}: {first_line(error)}"
