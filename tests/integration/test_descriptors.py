"""A failed attempt closes whatever it opened, although Python looks for no cycles."""

import gc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from relay.errors import Outage
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.publisher import IdempotentPublisher, TransactionalPublisher
from tests.support.waiting import until

ATTEMPTS = 20
NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
TIMEOUT = 0.05


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Prevent the garbage collection that a relay rarely does."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> tuple[int, int]:
    """Return how many descriptors and threads this process has."""
    return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))


def open_transactional() -> None:
    given = {**NOBODY, "transactional.id": "tests"}
    with closing(_publisher(TransactionalPublisher, given)) as publisher:
        publisher.open()


def open_idempotent() -> None:
    with closing(_publisher(IdempotentPublisher, NOBODY)) as publisher:
        publisher.open()
        raise Outage


def _publisher(
    kind: type[TransactionalPublisher] | type[IdempotentPublisher], given: dict[str, str]
) -> TransactionalPublisher | IdempotentPublisher:
    return kind(
        given, "progress", timeout=TIMEOUT, grace=1, stopped=lambda: False, slow=lambda _: None
    )


def _topic() -> ProgressTopic:
    return ProgressTopic("progress", NOBODY, timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("attempt", "times"),
    [
        (open_transactional, ATTEMPTS),
        (open_idempotent, 3),
        (lambda: _topic().ensure(), ATTEMPTS),
        (lambda: _topic().check(), ATTEMPTS),
        (lambda: _topic().peek("shop"), ATTEMPTS),
    ],
    ids=["transactional", "idempotent", "ensure", "check", "peek"],
)
def test_a_failed_attempt_leaves_nothing_open(attempt: Callable[[], None], times: int) -> None:
    before = held()
    for _ in range(times):
        with suppress(Outage):
            attempt()
    until(
        lambda: all(now <= then for now, then in zip(held(), before, strict=True)),
        within=5,
        what=f"no more than {before} descriptors and threads",
    )
