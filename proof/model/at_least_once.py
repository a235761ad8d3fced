"""The protocol without transactions: nothing fences, and a zombie's records may come late."""

from functools import partial

from proof.model.kafka import Request
from proof.model.postgres import Gone
from proof.model.relay import BATCH, Relay
from proof.model.world import EVENTS, PROGRESS, Bug, Mark, Point, Progress, ShutOut, Steps


class Repeating(Relay):
    """A relay that may repeat the batches in flight when another takes over, and no more."""

    def _take_over(self) -> Steps[Progress]:
        yield from self._connect()
        self._rewire(self._producers[0])
        mark = Mark(next(self._world.numbers))
        yield Point.MARK
        yield from self._await([self._append(PROGRESS, mark)])
        progress = yield from self._read_progress(mark)
        yield Point.CLAIM
        self._hold_against(progress)
        if self._world.bug is not Bug.RENEWS_BEFORE_TERM:
            # Before the database forgets a nonce, later records with that nonce must no longer
            # count.
            yield Point.RENEW
            with self._writing() as role:
                self._term = role.server.begin_term(role, progress.term)
            yield Point.PRODUCE_PROGRESS
            progress = progress._replace(term=self._term)
            yield from self._await([self._append(PROGRESS, progress)])
        yield Point.RENEW
        early = self._world.bug is Bug.RENEWS_BEFORE_TERM
        self._renew(self._known(), progress.nonce, progress.term - (not early))
        # Each relay that has the role may repeat the batch before its own, and its own.
        self._world.may_repeat += 2 * BATCH
        return progress

    def _publish(self, progress: Progress) -> Steps[Progress]:
        yield Point.READ
        rows, cursor = yield from self._read(progress.cursor)
        if not rows:
            if self._nonce(self._lsn) == self._carried:
                return progress
            cursor = progress.cursor
        sent = []
        for row in rows:
            yield Point.PRODUCE
            sent.append(self._append(EVENTS, row))
        yield from self._await(sent)
        yield Point.ROLE
        if self._world.bug is not Bug.NEVER_ASKS:
            try:
                self._role.require()
            except Gone as error:
                raise ShutOut from error
        yield Point.PRODUCE_PROGRESS
        progress = self._progress(cursor, self._lsn, frozenset())
        yield from self._await([self._append(PROGRESS, progress)])
        self._published(progress)
        return progress

    def _append(self, log: str, value: object) -> Request:
        return self._producers[0].wire.send(partial(self._broker.append, log, value))
