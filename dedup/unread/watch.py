"""Watch partitions that do not go on: say so, try again, and step over what a note covers."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from dedup.metrics import Metrics
from dedup.retries.aside import Partition
from dedup.rules.lanes.assigned import Assigned
from dedup.rules.unmoved import HELD_ADVICE, held_back
from dedup.rules.unread import Place, SkipNote
from dedup.unread.notes import summary
from dedup.unread.probing import OF_RECORD

_log = logging.getLogger("dovecote.consumer")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_LOOK_SECONDS = 5.0
_AGAIN_SECONDS = 60.0
_MOST_NAMED = 5
_REPEATED = 3
_ADVICE = (
    "repair it, or step over it by name: `dovecote consume skip`, or `dovecote push skip` for a "
    "subscription"
)


class _Found(NamedTuple):
    """The answers of Kafka about partitions that do not go on."""

    notes: Mapping[Place, SkipNote]
    stable: Mapping[Partition, int]
    refused: Mapping[Partition, str]
    """Why a new client gets no answer; empty: it gets one."""
    no_notes: str = ""
    """Why the notes cannot be read."""


@dataclass(slots=True)
class _Stuck:
    """A partition that does not go on."""

    assigned: Assigned
    at: int
    """The offset that is to be read next."""
    why: str
    since: float
    errors: int = 0
    failed: float = 0.0
    """When the last error came."""
    pause: float = _FIRST_PAUSE
    again: float = 0.0
    logged: float = -_AGAIN_SECONDS
    is_said: bool = False
    """Whether it is worth a word: other errors than those about records may pass by themselves."""
    silent: float = 0.0
    """For how long nothing has come, without an error; 0.0: that is no trouble."""
    end: int = -1
    """The end of the log, committed or not; -1: no request for its records is answered."""
    asked: float = -_AGAIN_SECONDS
    """When a new client last asked for its records."""
    is_answered: bool = False
    """Whether a new client got an answer in place of ours."""
    is_lost: bool = False
    """Whether nothing came of what can be read: the client may have lost what it was told."""
    is_held: bool = False
    """Whether a transaction that is open holds it back, so that reading is not at fault."""

    @property
    def is_unanswered(self) -> bool:
        """Whether it is silent, and no request for its records is answered."""
        return self.silent > 0 and self.end < 0

    @property
    def advice(self) -> str:
        """The advice to an operator; empty: the reason says it all."""
        if self.is_held:
            return HELD_ADVICE
        return "" if self.is_unanswered else _ADVICE


class Watch:
    """
    Used by the poll thread only.

    A partition is *blocked* from an error about a record until it is read again from the same
    place. Meanwhile nothing of it is taken, because the client may go on after the record, or
    anywhere: with a wrong checksum it takes the middle of a batch for the beginning of one.

    `read_from` lets the client read partitions from other offsets. `noted` returns the notes of
    operators for places that cannot be read, and may take its time: one of `threads` calls it,
    while a partition is stuck. `stable` returns their last stable offsets, in the same way, and
    `refused` why a new client gets no answer about a place: ours says it once, and may lose it.
    """

    def __init__(
        self,
        assigned: Mapping[Partition, Assigned],
        *,
        read_from: Callable[[Mapping[Partition, int]], None],
        noted: Callable[[Mapping[Place, str | None]], Mapping[Place, SkipNote]],
        stable: Callable[[Collection[Partition]], Mapping[Partition, int]],
        refused: Callable[[Place], str],
        threads: Executor,
        metrics: Metrics,
        stall_after: float,
    ) -> None:
        self._assigned, self._read_from = assigned, read_from
        self._noted, self._stable, self._refused = noted, stable, refused
        self._threads, self._metrics, self._stall_after = threads, metrics, stall_after
        self._stuck: dict[Partition, _Stuck] = {}
        self._standing: dict[Partition, tuple[Assigned, int, bool, float]] = {}
        self._known: Mapping[Place, SkipNote] = {}
        self._asked: set[Partition] = set()
        self._looking: Future[_Found] | None = None
        self._looked = -_LOOK_SECONDS
        self._no_notes = ""
        self._broker: tuple[str, float] | None = None

    def failed(self, place: Partition, offset: int | None, error: KafkaError) -> None:
        """Take an error that the client returned in place of a record of a partition."""
        found = self._assigned.get(place)
        if found is None or found.blocked:
            return
        now = time.monotonic()
        at = found.offsets.next
        at = max(0, offset or 0) if at is None else at
        stuck = self._known_as(place, _Stuck(found, at, "", now))
        stuck.why, stuck.errors, stuck.failed = error.str(), stuck.errors + 1, now
        stuck.silent, stuck.is_held, stuck.is_lost = 0.0, False, False
        if error.code() in OF_RECORD:
            found.blocked = found.begun = True
            stuck.again = now + stuck.pause
            stuck.pause = min(2 * stuck.pause, _LONGEST_PAUSE)
        stuck.is_said = stuck.is_said or found.blocked or stuck.errors >= _REPEATED
        self._say(place, stuck)

    def broker_failed(self, error: str) -> None:
        """Take note that an answer of a broker cannot be read, of whichever partition it is."""
        self._broker = error, time.monotonic()

    def go_on(self) -> None:
        """Read blocked partitions again if it is time to, and step over what a note covers."""
        if not self._stuck:
            return
        now = time.monotonic()
        for place, each in list(self._stuck.items()):
            if self._assigned.get(place) is not each.assigned:
                self._end(place)
        self._look(now)
        noted = {
            place: note
            for place, each in self._stuck.items()
            if (note := self._known.get(Place(*place, each.at))) is not None
        }
        due = {
            place: each.at
            for place, each in self._stuck.items()
            if (each.assigned.blocked or each.is_lost) and now >= each.again
        } | {place: note.until for place, note in noted.items()}
        if not due:
            return
        try:
            self._read_from(due)
        except KafkaException as error:  # the assignment is changing
            _log.debug("not read again yet: %s", error)
            return
        for place in due:
            self._assigned[place].blocked = False
            each = self._stuck[place]
            if each.is_lost:
                _log.info("%s/%d is read again from offset %d", *place, each.at)
                each.again = now + _AGAIN_SECONDS
        for place, note in noted.items():
            self._step_over(place, note)
        self._known = {}

    def observe(self, ends: Mapping[Partition, int]) -> None:
        """
        Notice which partitions go on, and which do not.

        `ends` are those of their logs, and -1 while requests for records are not answered, or with
        errors; one that is not named there is looked after elsewhere.
        """
        now = time.monotonic()
        for place, each in list(self._stuck.items()):
            if each.assigned.blocked:
                continue
            if each.assigned.offsets.next not in {None, each.at}:
                _log.info("%s/%d goes on after offset %d", *place, each.at)
                self._end(place)
            elif each.at == ends.get(place) and now - each.failed > _AGAIN_SECONDS:
                self._end(place)  # the errors have passed, and nothing is there to go on with
        for place in self._standing.keys() - self._assigned.keys():
            del self._standing[place]
        for place, found in self._assigned.items():
            end = ends.get(place, 0)
            at = _awaited(found, end)
            if at is None:
                self._standing.pop(place, None)
                continue
            known = self._standing.get(place)
            if known is None or known[:3] != (found, at, end < 0):
                if known is not None and known[2] and place in self._stuck:
                    self._end(place)  # it is answered again
                self._standing[place] = found, at, end < 0, now
            else:
                self._silent(place, _Stuck(found, at, "", now), now - known[3], end)

    def says(self, place: Partition) -> bool:
        """Return whether it reports a partition, or soon does."""
        found = self._stuck.get(place)
        return found is not None and (found.is_said or found.silent > 0)

    @property
    def is_stuck(self) -> bool:
        """Whether it has something to look after."""
        return bool(self._stuck)

    def report(self) -> str:
        """Return which partitions do not go on, and why."""
        said = {place: each for place, each in sorted(self._stuck.items()) if each.is_said}
        stuck = [_text(place, each) for place, each in said.items() if not each.is_held]
        held = [_text(place, each) for place, each in said.items() if each.is_held]
        self._metrics.stuck(place for place, each in said.items() if not each.is_held)
        self._metrics.held_back(place for place, each in said.items() if each.is_held)
        found = _few(stuck, "more partitions do not go on")
        if said and self._no_notes:
            found.append(self._no_notes)
        if any(each.advice == _ADVICE for each in said.values()):
            found.append(_ADVICE)
        if held:
            found += [*_few(held, "more partitions are held back"), HELD_ADVICE]
        if self._broker is not None and time.monotonic() - self._broker[1] < _AGAIN_SECONDS:
            found.append(f"an answer of Kafka cannot be read: {self._broker[0]}")
        return "; ".join(found)

    def _silent(self, place: Partition, stuck: _Stuck, seconds: float, end: int) -> None:
        if seconds <= self._stall_after:
            return
        stuck = self._known_as(place, stuck)
        if not stuck.errors or time.monotonic() - stuck.failed > _AGAIN_SECONDS:
            stuck.errors, stuck.silent, stuck.end = 0, seconds, end
        self._say(place, stuck)

    def _judge_unanswered(self, stuck: _Stuck, refused: str) -> None:
        """Say what a new client gets in place of an answer, or that it gets one again."""
        is_known = stuck.assigned.offsets.next is not None
        # Our client may have lost where to read, and without an offset it alone knows that.
        stuck.is_lost = not refused and is_known
        stuck.is_said = stuck.is_said or bool(refused) or stuck.is_answered
        stuck.is_answered, stuck.is_held = not refused, False
        advice = "so restart this one" if is_known else "so this one may not know where to begin"
        stuck.why = (
            f"no request for its records is answered for {stuck.silent:.0f} s: "
            f"{refused or f'a new client is answered, {advice}; the log may say why'}"
        )

    def _judge(self, stuck: _Stuck, stable: int | None) -> None:
        """Say why nothing comes: only the broker knows whether a transaction is open there."""
        nothing = f"nothing has come for {stuck.silent:.0f} s"
        held = stable is not None and stable <= stuck.at
        if held is not stuck.is_held:
            stuck.logged = -_AGAIN_SECONDS
        # Before it is said, it is read again: that helps a client that has lost an assignment.
        stuck.is_lost = stable is not None and not held
        stuck.is_said = stuck.is_said or not stuck.is_lost or stuck.again > 0
        stuck.is_held = held
        if stable is None:
            stuck.why = (
                f"{nothing}, and the log goes on to {stuck.end}: a transaction is open there, or "
                "the client cannot read it; the broker does not say which"
            )
        elif not held:
            stuck.why = (
                f"{nothing}, although it can be read up to {stable}: the client cannot read it"
            )

    def _known_as(self, place: Partition, new: _Stuck) -> _Stuck:
        """Return what is known of a partition that stands where `new` says."""
        stuck = self._stuck.get(place)
        if stuck is None or stuck.at != new.at or stuck.assigned is not new.assigned:
            self._stuck[place] = stuck = new
        return stuck

    def _say(self, place: Partition, stuck: _Stuck) -> None:
        now = time.monotonic()
        if stuck.is_said and now - stuck.logged >= _AGAIN_SECONDS:
            stuck.logged = now
            advice = f"; {stuck.advice}" if stuck.advice else ""
            _log.warning("%s (since %.0f s)%s", _text(place, stuck), now - stuck.since, advice)

    def _look(self, now: float) -> None:
        if self._looking is not None:
            if not self._looking.done():
                return
            found = _Found({}, {}, {})
            try:
                found = self._looking.result()
                error = found.no_notes
            except Exception as failure:  # noqa: BLE001  # it is said, and no look ends a consumer
                error = str(failure)
            self._no_notes = f"what may be stepped over is not known: {error}" if error else ""
            self._looking, self._known = None, found.notes
            for place, each in self._stuck.items():
                if each.silent and place in self._asked:
                    self._judge(each, found.stable.get(place))
                elif each.is_unanswered and place in found.refused:
                    self._judge_unanswered(each, found.refused[place])
        notes = {
            Place(*place, each.at): each.assigned.offsets.topic_id
            for place, each in self._stuck.items()
            if each.is_said and each.advice == _ADVICE
        }
        silent = {place: each for place, each in self._stuck.items() if each.silent}
        self._asked = {place for place, each in silent.items() if not each.is_unanswered}
        unanswered = self._unanswered(silent, now)
        if (notes or self._asked or unanswered) and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            if unanswered is not None:
                silent[unanswered[:2]].asked = now
            self._looking = self._threads.submit(self._look_up, notes, self._asked, unanswered)

    def _unanswered(self, silent: Mapping[Partition, _Stuck], now: float) -> Place | None:
        """Return the place to ask for next; one at a time, because an answer may take long."""
        due = [
            (each.asked, Place(*place, each.at))
            for place, each in silent.items()
            if each.is_unanswered and now - each.asked >= _AGAIN_SECONDS
        ]
        return min(due)[1] if due else None

    def _look_up(
        self,
        notes: Mapping[Place, str | None],
        silent: Collection[Partition],
        unanswered: Place | None,
    ) -> _Found:
        """Ask Kafka; a thread of its own does."""
        refused = {} if unanswered is None else {unanswered[:2]: self._refused(unanswered)}
        stable = self._stable(silent) if silent else {}
        try:
            return _Found(self._noted(notes) if notes else {}, stable, refused)
        except Exception as error:  # noqa: BLE001  # the rest of what was found counts all the same
            return _Found({}, stable, refused, str(error))

    def _step_over(self, place: Partition, note: SkipNote) -> None:
        found = self._assigned[place]
        _log.warning("%s", summary(note))
        self._metrics.stepped_over(place[0], note.until - self._stuck[place].at)
        found.offsets.pass_over(note.until)
        found.changed = True
        self._end(place)

    def _end(self, place: Partition) -> None:
        del self._stuck[place]
        self._standing.pop(place, None)


def _awaited(found: Assigned, end: int) -> int | None:
    """Return the offset from which something has to come; None: nothing has to."""
    if found.paused or found.blocked:
        return None
    at = found.offsets.next
    if end < 0:
        return at or 0
    return at if at is not None and at < end else None


def _text(place: Partition, stuck: _Stuck) -> str:
    if stuck.is_held:
        return held_back(place, stuck.at, stuck.end, seconds=stuck.silent)
    topic, partition = place
    return f"{topic}/{partition} does not go on at offset {stuck.at}: {stuck.why}"


def _few(said: list[str], more: str) -> list[str]:
    """Return the first of many texts, and how many there are besides."""
    if len(said) <= _MOST_NAMED:
        return said
    return [*said[:_MOST_NAMED], f"{len(said) - _MOST_NAMED} {more}"]
