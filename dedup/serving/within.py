"""Wait for a call that has no timeout of its own, for a limited time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """
    Return what `call` returns, or raise what it raises, in a thread of its own.

    Raises:
        TimeoutError: it does neither in time; its later result is dropped.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits for it
            answer.set_exception(error)

    threading.Thread(target=run, name="dovecote, within", daemon=True).start()
    return answer.result(seconds)
