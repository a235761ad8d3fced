"""Decide where an event stands with each part, from what the parts say."""

import shlex
from datetime import datetime

from dedup.retries import copies
from dovecote.observe.find.rules.facts import (
    At,
    DeadCopy,
    Facts,
    Parked,
    Reach,
    Row,
    Taker,
    moment,
    place_of,
)
from dovecote.observe.find.rules.life import ITS_FILE, Standing
from dovecote.observe.rules.counted import counted
from outbox.envelope import Record
from outbox.timestamps import milliseconds

_MOST_REASON = 300


def of_row(row: Row) -> Standing:
    """Return where an event of an outbox's table stands."""
    if row.published:
        return Standing(row.part, "retained", f"published by {row.part}, which retains its row")
    where = f"in {row.part}, not published"
    if row.published is None:
        where = f"in {row.part}; nothing says whether it is published"
        return Standing(row.part, "unknown", where)
    before = f", after {counted(row.ahead, 'earlier event')}" if row.ahead else ""
    if row.relay is None:
        return Standing(row.part, "unpublished", where, f"a relay of {row.part}: none is active")
    return Standing(row.part, "unpublished", where, f"the relay at {row.relay}{before}")


def of_parked(parked: Parked) -> Standing:
    """Return where an event stands that a relay has put aside."""
    if parked.code == "BEHIND":
        first = f"event {parked.after}" if parked.after else "an earlier event"
        where = f"held in {parked.part} after a parked event of its key"
        return Standing(parked.part, "held", where, f"{first} of its key, which is parked")
    where = f"parked in {parked.part} ({parked.code}: {parked.reason[:_MOST_REASON]})"
    todo = f"an operator: mend the cause, then {_requeue(parked.part, parked.id)}"
    return Standing(parked.part, "parked", where, todo)


def of_reader(
    reader: Taker, facts: Facts, topics: frozenset[str], now: datetime
) -> Standing | None:
    """Return where an event stands with a reader of `topics`; None: it never gets there."""
    records = facts.read_by(reader, topics)
    letter = _letter(reader, facts)
    latest = records[-1] if records else None
    if letter is not None and (latest is None or not _is_after(latest, letter)):
        return _dead(reader, letter)
    if latest is None:
        return None
    if reader.kind == "spark":
        return _spark(reader, facts, latest, now)
    found = _read(reader, facts, latest, now)
    if letter is not None and letter.fate == "requeued":
        state = (
            "requeued" if found.state in {"ahead", "working", "retry", "unknown"} else found.state
        )
        return found._replace(
            state=state,
            where=f"requeued from the dead letters of {reader.part}, and {found.where}",
        )
    return found


def _letter(reader: Taker, facts: Facts) -> DeadCopy | None:
    """Return the newest dead letter of a reader."""
    own = [
        each
        for each in facts.letters
        if each.owner == reader.part and each.group in {None, reader.group}
    ]
    return max(own, key=lambda each: (each.record.timestamp, each.record[:3]), default=None)


def _is_after(record: Record, letter: DeadCopy) -> bool:
    """Return whether a record was written after a letter: a requeued copy, or another try."""
    if letter.fate == "requeued" and letter.fate_at is not None:
        return record.timestamp >= (milliseconds(letter.record.timestamp) or 0)
    return record.timestamp > letter.record.timestamp


def _dead(reader: Taker, letter: DeadCopy) -> Standing:
    place = place_of(letter.record)
    if letter.fate == "dropped":
        return Standing(reader.part, "dropped", f"dropped from the dead letters of {reader.part}")
    if letter.fate == "requeued":
        where = (
            f"requeued from the dead letters of {reader.part}; its copy was not seen in the "
            "topics that were looked at"
        )
        return Standing(reader.part, "requeued", where)
    where = (
        f"a dead letter of {reader.part} at {place}, after {counted(letter.attempts, 'attempt')} "
        f"({letter.reason[:_MOST_REASON]})"
    )
    todo = f"an operator: {_requeue(reader.part, copies.known(letter.record)[1])}"
    return Standing(reader.part, "dead", where, todo)


def _requeue(part: str, id_: str) -> str:
    words = f"{shlex.quote(id_)} --part {shlex.quote(part)} {ITS_FILE}"
    return f"`dovecote dead requeue {words}`, or drop it"


def _read(reader: Taker, facts: Facts, record: Record, now: datetime) -> Standing:
    """Return where a record stands with a consumer or a subscription."""
    part, at = reader.part, (reader.part, place_of(record))
    if (known := _settled(reader, facts, record)) is not None:
        return known
    reach = facts.reaches.get(at)
    if reach is None:
        why = facts.unknown.get(part, "Kafka did not say what its group has committed")
        return Standing(part, "unknown", f"not known of {part}: {why}")
    if reach.completed:
        return _completed(reader, record)
    return _waiting(reader, facts, record, now) or _pending(reader, record, reach)


def _settled(reader: Taker, facts: Facts, record: Record) -> Standing | None:
    """Return what a part itself says of a record that it has settled; None: it says nothing."""
    part, at = reader.part, (reader.part, place_of(record))
    round_ = copies.delivery(record).round
    handled = [each for each in facts.handled.get(part, ()) if each.round >= round_]
    if handled:
        return Standing(part, "handled", f"handled by {part} at {_iso(handled[-1].at)}")
    if at in facts.skips:
        return Standing(part, "skipped", f"skipped by {part} ({facts.skips[at]})")
    attempts = facts.attempts.get(part, [])
    if attempts and attempts[-1].outcome == "delivered":
        return Standing(part, "delivered", f"delivered by {part} at {_iso(attempts[-1].at)}")
    return None


def _waiting(reader: Taker, facts: Facts, record: Record, now: datetime) -> Standing | None:
    """Return why a record waits that is not completed; None: nothing says why."""
    part, at = reader.part, (reader.part, place_of(record))
    if reader.paused:
        where = f"waiting at {part}, which is {reader.paused}"
        subscription = part.rpartition("/")[2]
        return Standing(part, "paused", where, f"`dovecote push resume {subscription}`")
    if attempts := facts.attempts.get(part, []):
        last = attempts[-1]
        said = (
            last.status if last.status is not None else last.detail[:_MOST_REASON] or "no answer"
        )
        where = f"failing at {part}: attempt {last.number} got {said}"
        return Standing(part, "retrying", where, f"the next attempt of {part}")
    if (held := facts.held.get(at)) is not None:
        where = f"held by {part} for attempt {held.attempt} ({held.error[:_MOST_REASON]})"
        due = f"attempt {held.attempt} of {part}"
        return Standing(part, "retry", where, due + _due(held.due, now))
    history = copies.delivery(record)
    if record.topic in reader.retries and history.not_before is not None:
        error = (history.error or "no reason is given")[:_MOST_REASON]
        where = f"on retry topic {record.topic} for attempt {history.attempt} of {part} ({error})"
        return Standing(part, "retry", where, part + _due(moment(history.not_before), now))
    return None


def _due(at: datetime | None, now: datetime) -> str:
    if at is None:
        return ""
    return f", at {_iso(at)}" if at > now else f", due since {_iso(at)}"


def _completed(reader: Taker, record: Record) -> Standing:
    part = reader.part
    if reader.kind == "push":
        where = f"completed by {part}; its last attempts no longer show the request"
        return Standing(part, "completed", where)
    where = (
        f"completed by {part} ({place_of(record)} is committed): handled, or skipped by its policy"
    )
    return Standing(part, "completed", where)


def _pending(reader: Taker, record: Record, reach: Reach) -> Standing:
    part = reader.part
    if reach.members == 0:
        where = f"not consumed by {part}"
        return Standing(part, "ahead", where, f"a member of group {reader.group}: it has none")
    if reach.behind == 0 or reach.begun:
        where = f"in work at {part}, or next in its line"
        return Standing(part, "working", where, f"{part} to complete {place_of(record)}")
    before = "it has committed nothing" if reach.behind is None else f"{reach.behind:,} before it"
    where = f"not completed by {part} ({before} in its partition)"
    return Standing(part, "ahead", where, f"{part} to come to {place_of(record)}")


def unwritten(reader: Taker, facts: Facts, topics: frozenset[str]) -> Record | None:
    """Return the last record that a Spark job reads, if none of its topics has a result of it."""
    records = facts.read_by(reader, topics)
    if not records or _letter(reader, facts) is not None or _results(reader, facts, records[-1]):
        return None
    return records[-1]


def _results(reader: Taker, facts: Facts, record: Record) -> list[Record]:
    own = [each.record for each in facts.outputs if each.owner == reader.part]
    return [each for each in own if each.timestamp >= record.timestamp]


def _spark(reader: Taker, facts: Facts, record: Record, now: datetime) -> Standing:
    """Return where a record stands with a Spark job."""
    part, at = reader.part, (reader.part, place_of(record))
    batch, reach = facts.batches.get(at), facts.reaches.get(at)
    by = f"batch {batch.number} of {part}" if batch is not None else part
    if own := _results(reader, facts, record):
        return _result(part, max(own, key=lambda each: each.timestamp), by, now)
    if (batch is not None and batch.finished) or (reach is not None and reach.completed):
        return _taken(facts, record, at, by)
    if batch is not None:
        return Standing(part, "working", f"in {by}, which is under way", f"the end of {by}")
    if reach is None:
        why = facts.unknown.get(part, "neither its checkpoint nor its group says so")
        return Standing(part, "unknown", f"not known of {part}: {why}")
    return Standing(part, "ahead", f"not taken by {part}", f"the next batch of {part}")


def _result(part: str, newest: Record, by: str, now: datetime) -> Standing:
    """Return where an event stands of which a topic of the job has a record."""
    history = copies.delivery(newest)
    due = moment(history.not_before)
    if due is None:
        return Standing(part, "output", f"written by {by} to {place_of(newest)}")
    error = (history.error or "it asked to come again")[:_MOST_REASON]
    where = f"retried by {by}: on {place_of(newest)} ({error})"
    return Standing(part, "retry", where, part + _due(due, now))


def _comes_again(facts: Facts, record: Record) -> bool:
    """Return whether an earlier record of the event was found as well."""
    return any(each.timestamp < record.timestamp for each in facts.home)


def _taken(facts: Facts, record: Record, at: At, by: str) -> Standing:
    """Return where an event stands whose last record was taken, and is written nowhere."""
    found, part = _unwritten(facts, at, by), at[0]
    earlier = [each.record for each in facts.outputs if each.owner == part]
    if found.state == "duplicate" and earlier and _comes_again(facts, record):
        where = f"written by {part} to {place_of(earlier[-1])}; {place_of(record)} repeats it"
        return Standing(part, "output", where)
    return found


def _unwritten(facts: Facts, at: At, by: str) -> Standing:
    """Return what became of a record that a finished batch took, and that no topic has."""
    part, found = at[0], facts.outcomes.get(at)
    if found is not None and found.kind != "taken":
        return Standing(part, found.kind, f"taken by {by}: {found.why}")
    why = "the job skipped it, keeps it in its state, or writes results with ids of their own"
    if found is not None:
        why = found.why
    return Standing(part, "taken", f"taken by {by}; its topics have no record of this id: {why}")


def of_topic(record: Record, *, read: bool) -> Standing:
    """Return where a published record is."""
    part = f"topic/{record.topic}"
    more = "" if read else f", and no part of the file reads topic {record.topic}"
    return Standing(part, "published", f"at {place_of(record)}{more}")


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
