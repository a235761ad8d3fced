"""See to it that an outbox is read on from where it stands, in its table or in the log."""

import logging
import time
from collections.abc import Sequence
from functools import partial

from dovecote.audit.away import away
from dovecote.audit.log.gaps import NotAudited
from dovecote.audit.log.reading import LogReader
from dovecote.audit.outlook import Outlook
from dovecote.audit.parts import Plan
from dovecote.audit.postgres import Evidence, Reader, Window
from dovecote.audit.rules.ids import text_of
from dovecote.audit.rules.logged import Place
from dovecote.audit.rules.matching import LOG, Matcher, Row
from dovecote.audit.rules.promoted import lacks_commits
from dovecote.audit.store import Store
from outbox.errors import BadSettings

_log = logging.getLogger("dovecote.audit")

KEEPS_NO_ROWS = (
    "its relays keep no published rows, with which records could be compared: set "
    '`retention = "1h"` in relay.toml and name that file as `config`, or give `retention` here'
)
NEEDS_STATE = (
    "its events are in the write-ahead log, which is read from the auditor's first look on: name "
    "a file in `audit.state`, from which the next run goes on"
)


def wall() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)


class Sources:
    """The readers of all outboxes: of their tables, and of their logs."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        matcher: Matcher,
        outlooks: Sequence[Outlook],
    ) -> None:
        self.plan, self.store, self.matcher, self.outlooks = plan, store, matcher, outlooks
        self.troubles: dict[str, str] = {}
        self.readers = [Reader(each) for each in plan.outboxes]
        self.logs = [
            LogReader(each, outlook, plan.slot_bytes)
            for each, outlook in zip(plan.outboxes, outlooks, strict=True)
        ]
        self.not_audited = [NotAudited(*each) for each in store.fact("not_audited", [])]
        """The gaps since the last statement."""
        self.over: dict[str, str] = store.fact("over", {})
        """The troubles since the last statement that are over."""

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        for log in self.logs:
            log.close()

    def require_same(self, index: int) -> None:
        """Begin anew from now on, if the database is another one or was put back."""
        outlook, reader, log = self.outlooks[index], self.readers[index], self.logs[index]
        outbox = self.plan.outboxes[index]
        identity, now = reader.identity(), log.look()
        outlook.identity = outlook.identity or identity
        reach, known = reader.reach(), outlook.reach
        known = known._replace(end=outlook.place.at or known.end)
        is_behind = reader.is_behind(outlook.window) or lacks_commits(known, reach)
        if now.state != "table":
            is_behind |= outlook.place.at > now.end
        if identity != outlook.identity or is_behind:
            self._begin_anew(index, identity)
            known = reach
        outlook.reach = known._replace(timeline=reach.timeline or known.timeline)
        if now.state == "table":
            if outlook.place.at or outlook.in_log or outlook.is_added:
                log.leave(now)
                why = "the outbox is captured from its table"
                why = "it is new in this state" if outlook.is_added else why
                self._gap(index, outlook.covered_wall or None, why)
                at = wall()
                outlook.blind.append((0, at, at))
                outlook.window, outlook.covered_wall = Window(reader.snapshot()), at
                outlook.in_log = outlook.is_added = False
            if not outbox.retention:
                msg = f"{outbox.part}: {KEEPS_NO_ROWS}"
                raise BadSettings(msg)
            return
        outlook.in_log = True  # until it can be read
        if not self.store.is_lasting:
            raise away(outbox.part, NEEDS_STATE)
        self.store.be_durable()
        log.prepare(now, wall, partial(self._gap, index))
        outlook.in_log = outlook.is_added = False

    @property
    def said(self) -> list[str]:
        """Return the sentences about what is over, until a statement has said them."""
        return [*self.over.values(), *(each.text for each in self.not_audited)]

    def forget(self) -> None:
        """Forget what a statement has said."""
        self.over.clear()
        self.not_audited.clear()

    def _gap(self, index: int, since: int | None, why: str) -> None:
        gap = NotAudited(self.plan.outboxes[index].part, since, wall(), why)
        _log.warning("%s", gap.text)
        self.not_audited.append(gap)

    def _begin_anew(self, index: int, identity: str) -> None:
        outlook, part = self.outlooks[index], self.plan.outboxes[index].part
        self.over[f"restored {part}"] = (
            f"{part}: this database is another one, or was put back to an earlier state: what "
            "was committed before is not judged, and the comparison begins anew"
        )
        for number, row in list(self.matcher.rows.items()):
            if self.matcher.kinds[row.kind].outbox == index:
                self.matcher.drop_row(number)
        self.store.drop_rows(
            [n for n, each in enumerate(self.matcher.kinds) if each.outbox == index]
        )
        at = wall()
        outlook.identity, outlook.covered = identity, -1
        outlook.blind.append((0, at, at))
        outlook.window = Window(self.readers[index].snapshot())
        outlook.place = Place(events=outlook.place.events)
        # The places of the marks are of a log that is gone.
        outlook.passed, outlook.marks = outlook.place.events, []
        outlook.covered_wall = at

    def evidence(self, index: int, rows: Sequence[tuple[int, Row]]) -> dict[int, Evidence]:
        """Return what Postgres says of rows, by position; those that are not there are missing."""
        reader, matcher = self.readers[index], self.matcher
        in_table = [row.position for _, row in rows if row.position < LOG]
        told = reader.evidence(in_table) if in_table else {}
        logged = {
            row.position: (text_of(number ^ of.salt), matcher.topics[of.topic].name)
            for number, row in rows
            if row.position >= LOG
            for of in [matcher.kinds[row.kind]]
        }
        if logged:
            parked = reader.parked_among(id_ for id_, _ in logged.values())
            for position, is_passed in self.logs[index].state_of(logged).items():
                name = logged[position]
                told[position] = Evidence(True, is_passed, name in parked, name[0], None, "")  # noqa: FBT003  # it is there
        return told
