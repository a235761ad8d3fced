"""Audit the log of one outbox: begin, read on, confirm what is stored, and give up in time."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection, errors
from psycopg.rows import TupleRow

from dovecote.audit.away import Away, away
from dovecote.audit.log.slots import Log, drop, in_use, lacks_replication, log_of, make, prefix_of
from dovecote.audit.log.stream import LogStream, NoPublication, content, kept_alive
from dovecote.audit.outlook import Outlook
from dovecote.audit.parts import Outbox
from dovecote.audit.rules.logged import LogDecoder, Place, why_anew
from dovecote.audit.rules.matching import LOG, Read
from dovecote.audit.rules.passing import passed
from outbox.errors import DovecoteError, first_line
from outbox.postgres.session import connect

_log = logging.getLogger("dovecote.audit")
_ASK_EVERY = 250
_NEVER = 1 << 62
_ANSWER_MILLISECONDS = 60_000

Say = Callable[[int | None, str], None]
"""Takes since when an outbox was not audited up to now (None: never before), and why."""


class LogReader:
    """The log of one outbox, by one thread. Its place is in the outlook, which a store keeps."""

    def __init__(self, outbox: Outbox, outlook: Outlook, most: int) -> None:
        """`most`: how many bytes of the log its slot may hold back."""
        self.outbox, self.outlook, self._most = outbox, outlook, most
        self._asking: Connection[TupleRow] | None = None
        self._stream: LogStream | None = None
        self._decoder: LogDecoder | None = None
        self._early: list[bytes] = []
        self._target: int | None = None
        self._asked = -_ASK_EVERY
        self._relayed: int | None = None
        self._name = self._user = self._why = ""
        self.retained = 0
        """Bytes of the log that the server keeps for the slot."""

    def close(self) -> None:
        self._hang_up()
        if self._asking is not None:
            with suppress(psycopg.Error):
                self._asking.close()
        self._asking = None

    def _hang_up(self) -> None:
        if self._stream is not None:
            with suppress(psycopg.Error):
                self._stream.close()
        self._stream = self._decoder = self._target = None
        self._early = []

    def _ask(self, do: Callable[[Connection[TupleRow]], Any]) -> Any:  # noqa: ANN401  # its result
        try:
            if self._asking is None or self._asking.closed:
                self._asking = connect(self.outbox.dsn, name="dovecote-audit")
                self._asking.execute(f"SET statement_timeout = {_ANSWER_MILLISECONDS}".encode())
                self._user = self._asking.info.user
            return do(self._asking)
        except (psycopg.Error, DovecoteError) as error:
            self.close()
            raise error if isinstance(error, Away) else away(self.outbox.part, error) from error

    def look(self) -> Log:
        """
        Return the log as it is now.

        Raises:
            Away: Postgres does not answer, or refuses.
        """
        found: Log = self._ask(lambda conn: log_of(conn, self.outbox.schema))
        self.retained = max(0, (found.slot.retained or 0) if found.slot else 0)
        self._name = found.name
        return found

    def prepare(self, log: Log, wall: Callable[[], int], say: Say) -> None:
        """
        See to a slot from which the reading can go on; `say` what was not audited.

        Raises:
            Away: there is none; the message says what to do.
        """
        outlook, part = self.outlook, self.outbox.part
        why: str | None = "its reading begins"
        if outlook.place.at:
            why = why_anew(outlook.place, log.slot, log.end, self._most)
        if why is None:
            return
        # A slot that was dropped and cannot be made yet is gone at the next look.
        self._why = self._why or why
        self._hang_up()
        self._ask(lambda conn: prefix_of(conn, part, self.outbox.schema))
        if log.slot is not None:
            self._ask(lambda conn: drop(conn, part, log.name))
        begun = self._ask(lambda conn: make(conn, part, log.name))
        is_first, at = outlook.covered_wall == 0, wall()
        say(None if is_first else outlook.covered_wall, self._why)
        self._why = ""
        # A relay may publish for long what was committed before.
        outlook.blind = [*outlook.blind[-99:], (0, _NEVER, at)]
        outlook.place = Place(begun, events=outlook.place.events, begun=begun)
        outlook.begun_wall = outlook.covered_wall = at
        outlook.complete = False

    def leave(self, log: Log) -> None:
        """Drop the slot of an outbox that is captured from its table again."""
        self._hang_up()
        if log.slot is not None:
            self._ask(lambda conn: drop(conn, self.outbox.part, log.name))
        place = self.outlook.place
        self.outlook.place = Place(events=place.events)
        self.outlook.passed, self.outlook.marks = place.events, []

    def read(self, most: int, now: Callable[[], int], wall: Callable[[], int]) -> list[Read]:
        """
        Return the next events, in the order of their commits.

        Raises:
            Away: Postgres does not answer, or refuses.
        """
        outlook = self.outlook
        if self._target is None and now() - self._asked >= _ASK_EVERY:
            self._asked, outlook.asked, outlook.asked_wall = now(), now(), wall()
            log = self.look()
            self._note_passed(log.relayed, wall())
            self._target = log.end
        rows = self._next(most)
        if rows:
            outlook.marks.append((outlook.place.events, outlook.place.end))
        if self._target is not None and outlook.place.at >= self._target:
            outlook.covered, outlook.covered_wall = outlook.asked, outlook.asked_wall
            outlook.complete, self._target = True, None
        elif rows:
            outlook.complete = False
        return rows

    def _note_passed(self, relayed: int | None, at: int) -> None:
        outlook, self._relayed = self.outlook, relayed
        outlook.marks, number = passed(outlook.marks, relayed)
        outlook.passed = outlook.passed if number is None else number
        if relayed is not None and relayed > outlook.place.begun:
            # The relays have published all that was committed before the reading began.
            outlook.blind = [
                (since, at if until == _NEVER else until, written)
                for since, until, written in outlook.blind
            ]

    def _next(self, most: int) -> list[Read]:
        outlook, rows = self.outlook, list[Read]()
        before = replace(outlook.place)
        try:
            stream, decoder = self._opened()
            stream.report(0, ask=self._target is not None and before.at < self._target)
            messages = self._early or stream.receive(0.02)
            self._early = []
            for at, data in enumerate(messages):
                if len(rows) >= most:
                    self._early = messages[at:]
                    break
                end = kept_alive(data)
                if end is None:
                    rows += decoder.take(content(data))
                else:
                    decoder.caught_up(end)
        except ValueError as error:
            self._begin_again(before)
            msg = (
                f"{self.outbox.part}: after {before.at} the write-ahead log holds what this "
                f"version does not understand: {error}"
            )
            raise Away(msg) from error
        except (psycopg.Error, DovecoteError) as error:
            self._begin_again(before)
            if isinstance(error, Away):
                raise
            raise self._refused(error) from error
        return rows

    def _begin_again(self, place: Place) -> None:
        # The server must send again all that was decoded and is not given.
        self.outlook.place = place
        self.close()

    def _refused(self, error: Exception) -> Away:
        said, part = str(error), self.outbox.part
        if isinstance(error, errors.ObjectInUse):
            return in_use(part, self._name)
        if isinstance(error, NoPublication):
            msg = (
                f"{part}: the write-ahead log cannot be read on ({first_line(error)}): the "
                "publication was dropped by others, and before PostgreSQL 18 a server reads "
                "nothing that was written until it was made anew. Make it with `dovecote init "
                "outbox --capture wal`, and drop the auditor's slot with `dovecote audit "
                "--drop-slot`: it begins anew then"
            )
            return Away(msg)
        if "REPLICATION attribute" in said or "to start WAL sender" in said:
            return lacks_replication(part, self._user)
        return away(part, error)

    def _opened(self) -> tuple[LogStream, LogDecoder]:
        if self._stream is None or self._decoder is None:
            log = self.look()
            prefix = self._ask(lambda c: prefix_of(c, self.outbox.part, self.outbox.schema))
            place = self.outlook.place
            self._stream = LogStream(self.outbox.dsn, log.name, log.publication, place.at)
            self._decoder = LogDecoder(self.outbox.schema, prefix, place)
        return self._stream, self._decoder

    def confirm(self, place: Place) -> None:
        """Let the server forget what lies before a place that the store has."""
        if self._stream is not None:
            try:
                self._stream.report(place.at)
            except psycopg.Error as error:
                # The next reading says what it is, and the server keeps what lies after the slot.
                _log.info("%s: the slot was not moved: %s", self.outbox.part, error)
                self._begin_again(self.outlook.place)

    def stay(self) -> None:
        """Keep the server from dropping a connection from which nothing is read now."""
        self.confirm(Place())

    def state_of(self, numbers: Iterable[int]) -> dict[int, bool | None]:
        """Return for positions whether relays have passed them; None: they have no slot."""
        return {
            each: None if self._relayed is None else each - LOG <= self.outlook.passed
            for each in numbers
            if each >= LOG
        }
