"""Postgres refuses one event, and takes the others in order."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta

import psycopg
import pytest

from outbox import Event
from outbox.errors import NotAccepted, NotAllowed
from outbox.event import Limits
from outbox.producer.fallback import Fallback
from outbox.producer.ledger import Ledger
from outbox.producer.options import Options
from outbox.producer.spill import Spill
from outbox.producer.waiting import Via
from tests.support.waiting import patient

Refuse = Callable[[Sequence[Event]], Exception | None]


class Table(Fallback):
    """An outbox without a server, which raises what `refuse` returns for a transaction."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__("host=127.0.0.1 port=9", "outbox", Limits())
        self.refuse = refuse
        self.rows: list[object] = []
        self.sizes: list[int] = []

    def write(self, events: Sequence[Event]) -> int:
        self.sizes.append(len(events))
        if (error := self.refuse(events)) is not None:
            raise error
        self.rows += [event.value for event in events]
        return len(self.sizes)


def error_with(sqlstate: str, said: str) -> psycopg.Error:
    """Return the error for a SQLSTATE that `RAISE … USING ERRCODE` gave."""
    error = psycopg.DatabaseError(said)
    error.sqlstate = sqlstate
    return error


def spilled(
    table: Table,
    count: int,
    options: Options = Options(fresh=True),  # noqa: B008  # frozen
) -> list["Future[Via]"]:
    """Return the promises of events of a few keys, offered before the first one is written."""
    ledger = Ledger(options, None)
    promises = []
    for value in range(count):
        number, promise = ledger.waiting.add(
            Event(topic="t", type="T", key=str(value % 3), value=value), 1, float("inf")
        )
        ledger.routing.offer(number, str(value % 3).encode())
        promises.append(promise)
    ended = threading.Event()
    spill = Spill(ledger, table, options, lambda _: None)

    def watch() -> None:
        while not ended.wait(0.01):
            spill.require_answer()

    threads = [
        threading.Thread(target=spill.run, args=(ended,)),
        threading.Thread(target=watch),
    ]
    for thread in threads:
        thread.start()
    try:
        for promise in promises:
            promise.exception(patient(10))
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert ledger.outbox_trouble is None
    return promises


def holding(error: Exception, *bad: int) -> Refuse:
    """Refuse each transaction with one of these values."""
    return lambda events: error if {event.value for event in events} & {*bad} else None


def restricted() -> NotAllowed:
    """Return the error for a role that may not write to a topic, as the outbox raises it."""
    error = NotAllowed("role shop may not write to topic 't'; run `dovecote init outbox …`")
    error.__cause__ = psycopg.errors.InsufficientPrivilege(
        "outbox: role shop may not write to topic 't'"
    )
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (psycopg.errors.UntranslatableCharacter("no equivalent in LATIN1"), "no equivalent"),
        (psycopg.errors.CheckViolation("an event of 200034 bytes"), "200034 bytes"),
        (psycopg.errors.RaiseException("a trigger says no"), "a trigger says no"),
        (psycopg.DataError("text with NUL"), "text with NUL"),
        (error_with("U0001", "a trigger has its own code"), "its own code"),
        (restricted(), "may not write to topic"),
    ],
)
@pytest.mark.parametrize("bad", [(0,), (150,), (199,), (7, 8, 9, 100), tuple(range(0, 200, 9))])
def test_an_event_that_postgres_refuses_is_refused_alone_and_the_others_keep_their_order(
    error: Exception, says: str, bad: tuple[int, ...]
) -> None:
    table = Table(holding(error, *bad))
    promises = spilled(table, 200)
    for value in bad:
        with pytest.raises(NotAccepted, match=f"Postgres: .*{says}"):
            promises[value].result(0)
    assert table.rows == [value for value in range(200) if value not in bad]
    assert {p.result(0) for value, p in enumerate(promises) if value not in bad} == {"outbox"}
    assert len(table.sizes) < 20 * len(bad) + 10


def test_an_error_of_one_moment_refuses_nothing() -> None:
    errors: list[Exception] = [psycopg.errors.InternalError_("tuple concurrently updated")]
    table = Table(lambda _: errors.pop() if errors else None)
    (promise,) = spilled(table, 1)
    assert (promise.result(0), table.rows) == ("outbox", [0])


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection refused"),
        psycopg.errors.AdminShutdown("it ends"),
        NotAllowed("permission denied for schema outbox; run `dovecote init outbox …`"),
    ],
)
def test_what_is_no_events_fault_leaves_them_together(error: Exception) -> None:
    errors = [error]
    table = Table(lambda _: errors.pop() if errors else None)
    spilled(table, 8)
    assert (table.sizes, table.rows) == ([8, 8], list(range(8)))


def test_after_an_outage_in_the_search_all_are_written_together_again() -> None:
    errors: list[Exception] = [
        psycopg.OperationalError("connection refused"),
        psycopg.errors.RaiseException("no"),
    ]
    table = Table(lambda _: errors.pop() if errors else None)
    spilled(table, 8)
    assert (table.sizes, table.rows) == ([8, 4, 8], list(range(8)))


@pytest.mark.parametrize(
    "error", [psycopg.errors.QueryCanceled("statement timeout"), psycopg.OperationalError("cut")]
)
def test_what_is_too_much_for_one_statement_goes_in_several(error: psycopg.Error) -> None:
    """A role's `statement_timeout`, or our own patience, ends more than three at a time."""
    cut = threading.Event()

    def refuse(events: Sequence[Event]) -> Exception | None:
        if len(events) <= 3:
            return None
        if not isinstance(error, psycopg.errors.QueryCanceled):
            cut.clear()
            assert cut.wait(patient(10))
        return error

    table = Table(refuse)
    table.cut = cut.set  # type: ignore[method-assign]
    promises = spilled(table, 20, Options(fresh=True, delivery_timeout=timedelta(seconds=0.05)))
    assert table.rows == list(range(20))
    assert {promise.result(0) for promise in promises} == {"outbox"}
    assert table.sizes[:4] == [20, 10, 5, 2]
