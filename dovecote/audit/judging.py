"""Look more closely at what stayed open, and say what it is."""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice

from dovecote.audit.comparing import Comparison
from dovecote.audit.continuing import wall
from dovecote.audit.kafka import unknown_in
from dovecote.audit.postgres import Evidence
from dovecote.audit.rules.finding import Finding, Kind, shown_key
from dovecote.audit.rules.ids import text_of, time_in
from dovecote.audit.rules.matching import LOG, Row, Seen, Suspicion, place_of, placed
from dovecote.audit.rules.verdict import Alone, Open, of_record, of_row

_MOST = 500
_MOST_CLAIMS = 5_000
_MOST_ASKED, _ASK_EVERY = 20_000, 5_000
"""How many ids one look through the table is for, and how long the next one waits."""
_STUCK = 60_000
_NEVER = 1 << 62


class Judge:
    """
    Rounds that judge open rows and records.

    A row is lost only if a relay says that it passed it, and the topic was then read to its end.
    """

    def __init__(self, comparison: Comparison) -> None:
        self._of = comparison
        self._claims: dict[int, tuple[int, dict[int, int], int]] = {}
        """For each row that a relay has passed: its topic, where that ended then, and when."""
        self._asked = -_ASK_EVERY
        self._waits: dict[int, dict[int, int]] = {}
        """For each outbox, old rows that no relay had passed, and when each was written."""
        self.found = 0

    def round(self, until: int | None = None) -> None:
        """
        Judge what was committed, with rows that were read up to `until`.

        Without it, these are the rows that are older than the grace.
        """
        of = self._of
        grace = int(of.plan.grace * 1000)
        until = of.now() - grace if until is None else until
        self.alone()
        self._settle_claims()
        for index in range(len(of.readers)):
            of.guarded(
                f"asking {of.plan.outboxes[index].part}",
                partial(self._ask, index, until, grace),
            )

    def is_busy(self, until: int) -> bool:
        """Return whether something that was read up to a time is not judged."""
        matcher = self._of.matcher
        rows = (n not in matcher.parked for n, _ in matcher.rows_until(until))
        # Records may be of an outbox in a log that cannot be read: they wait for ever.
        in_log = any(each.in_log for each in self._of.outlooks)
        records = not in_log and matcher.records_until(until, 1)
        return bool(self._claims or any(rows) or records)

    def add(self, finding: Finding) -> None:
        """Keep a finding, unless an operator knows of it."""
        if finding.id in self._of.plan.accepted:
            return
        self.found += self._of.store.add(finding, wall())

    def _finding(
        self,
        kind: Kind,
        of_what: tuple[int, Row, bytes | None],
        places: Iterable[str],
        reason: str,
        *,
        count: int = 1,
    ) -> Finding:
        number, row, key = of_what
        matcher = self._of.matcher
        of = matcher.kinds[row.kind]
        outbox = self._of.plan.outboxes[of.outbox]
        return Finding(
            kind=kind,
            part=outbox.part,
            topic=matcher.topics[of.topic].name,
            id=text_of(number ^ of.salt),
            key=shown_key(key),
            at=row.appended,
            places=(_row_place(outbox.schema, row.position), *places),
            reason=reason,
            count=count,
        )

    def _place(self, record: Seen) -> str:
        return f"{self._of.matcher.topics[record.topic].name}/{record.partition}/{record.offset}"

    def matched(self) -> None:
        """Judge what was odd as rows and records were matched; a store does not keep this."""
        matcher = self._of.matcher
        if not matcher.suspicions and not matcher.late:
            return
        if any(each.kind == "misplaced" for each in matcher.suspicions):
            self._of.look()  # partitions may have been added since the last look
        with self._of.store.whole():
            self._suspicions()
            self._late()

    def _suspicions(self) -> None:
        matcher = self._of.matcher
        suspicions, matcher.suspicions = matcher.suspicions, []
        for each in suspicions:
            place = self._place(each.record)
            if each.kind == "disordered":
                self._disordered(each, place)
                continue
            grown_at = matcher.topics[each.record.topic].grown_at
            if each.kind == "misplaced" and each.record.at < grown_at:
                continue
            kind: Kind = "altered" if each.kind == "altered" else "misplaced"
            reason = (
                "the record has another key or value than the row"
                if kind == "altered"
                else "the partition is not that of the key"
            )
            self.add(self._finding(kind, (each.id, each.row, each.record.key), [place], reason))

    def _disordered(self, each: Suspicion, place: str) -> None:
        """Judge two events of a key that lie in another order than their rows."""
        offset, position, seen = map(int, each.more.split())
        pair = sorted(
            [(each.row.position, each.record.offset, each.row.seen), (position, offset, seen)]
        )
        (low, low_offset, low_seen), (high, high_offset, high_seen) = pair
        if low_seen > high_seen:
            # The row with the lower position was committed later: its writer had no lock.
            self._of.unlocked += 1
            return
        before = place.rsplit("/", 1)[0] + f"/{offset}"
        reason = (
            f"row {high % LOG} of its key is at offset {high_offset}, before the earlier row "
            f"{low % LOG} at "
            f"offset {low_offset}"
        )
        self.add(
            self._finding(
                "disordered", (each.id, each.row, each.record.key), [place, before], reason
            )
        )

    def alone(self) -> None:
        """Judge records without a row, once all rows that were committed before are read."""
        of, matcher = self._of, self._of.matcher
        if not of.outlooks:
            return
        covered = min(each.covered for each in of.outlooks)
        asks = of.plan.foreign == "ignore" or of.now() - self._asked > _ASK_EVERY
        most = _MOST_ASKED if asks else _MOST
        found = matcher.records_until(min(covered, of.now()) - 1, most)
        unknown: list[tuple[int, Seen, str]] = []
        for number, record in found:
            place = of.store.done_at(number)
            salted = self._id_of(number, record)
            if place is not None:
                self._surplus(number, record, salted, placed(place), has_row=False)
            else:
                unknown.append((number, record, salted))
        if unknown and of.plan.foreign == "ignore":
            for number, record, _ in unknown:
                matcher.topics[record.topic].counts.foreign += 1
                matcher.drop_record(number)
        elif unknown and asks:
            self._asked = of.now()
            ids = {salted for _, _, salted in unknown}
            known: set[tuple[str, str]] = set()
            for index, reader in enumerate(of.readers):
                told = of.guarded(
                    f"asking {of.plan.outboxes[index].part}",
                    partial(reader.known_ids, ids),
                )
                if told is None:
                    return
                known |= told
            for number, record, salted in unknown:
                has_row = (salted, matcher.topics[record.topic].name) in known
                self._surplus(number, record, salted, None, has_row=has_row)

    def _id_of(self, number: int, record: Seen) -> str:
        return text_of(number ^ self._of.matcher.salt(record.source, record.topic))

    def _surplus(
        self,
        number: int,
        record: Seen,
        id_: str,
        first: tuple[int, int, int] | None,
        *,
        has_row: bool,
    ) -> None:
        of, matcher = self._of, self._of.matcher
        topic = matcher.topics[record.topic]
        own = placed(place_of(record, topic.incarnation))
        what = of_record(
            Alone(
                at=record.at,
                made=time_in(int(id_.replace("-", ""), 16)),
                first=first,
                own=own,
                has_row=has_row,
                at_least_once=any(each.at_least_once for each in of.plan.outboxes),
                blind=[each for outlook in of.outlooks for each in outlook.blind],
            )
        )
        matcher.drop_record(number)
        if what == "unjudged":
            topic.counts.unjudged += 1
        elif what == "repeat":
            topic.counts.repeats += 1
        elif what == "new_topic":
            topic.counts.copies += 1
        elif what in {"doubled", "phantom"}:
            kind: Kind = "doubled" if what == "doubled" else "phantom"
            places = [] if first is None else [f"{topic.name}/{first[1]}/{first[2]}"]
            reason = (
                "no committed row has this id"
                if kind == "phantom"
                else "the topic has two records of one row"
                if first is not None
                else "the topic has another record of a row that was matched before the window"
            )
            self.add(
                Finding(
                    kind=kind,
                    part=self._part(record),
                    topic=topic.name,
                    id=id_,
                    key=shown_key(record.key),
                    at=record.at,
                    places=(*places, self._place(record)),
                    reason=reason,
                )
            )

    def _part(self, record: Seen) -> str:
        of = self._of
        for each in of.matcher.kinds:
            if each.topic == record.topic and each.outbox < len(of.plan.outboxes):
                return of.plan.outboxes[each.outbox].part
        return of.plan.outboxes[0].part

    def _ask(self, index: int, until: int, grace: int) -> None:
        """Claim the old rows of an outbox that a relay has passed."""
        of, matcher = self._of, self._of.matcher
        outlook, outbox = of.outlooks[index], of.plan.outboxes[index]
        if outlook.covered < 0 or len(self._claims) > _MOST_CLAIMS:
            return
        old = self._old(index, until)
        known = self._waits.get(index, {})
        waits = self._waits[index] = {n: at for n, at in known.items() if n in matcher.rows}
        if not old:
            if not waits:
                of.troubles.pop(f"waiting {outbox.part}", None)
            return
        told = of.sources.evidence(index, old)
        passed = [
            (n, row) for n, row in old if self._is_passed(n, row, told.get(row.position), grace)
        ]
        gone = {number for number, _ in passed}
        for number, row in old:
            waits.pop(number, None)
            if number not in gone and number not in matcher.parked:
                waits[number] = row.appended
        self._say_waiting(index, waits)
        topics = {matcher.kinds[row.kind].topic for _, row in passed}
        described = of.topics.describe(matcher.topics[each].name for each in topics)
        for number, row in passed:
            topic = matcher.kinds[row.kind].topic
            at = described.get(matcher.topics[topic].name)
            if at is not None and topic in of.topics.positions and not unknown_in(at):
                ends = {each.number: each.end or 0 for each in at.partitions}
                self._claims[number] = (topic, ends, of.now())
        for number, _ in old:
            if number not in self._claims:
                matcher.postpone(number, of.now())  # it keeps no others from being judged

    def _old(self, index: int, until: int) -> list[tuple[int, Row]]:
        """Return old open rows of an outbox; some that were on disk alone come into memory."""
        of, matcher = self._of, self._of.matcher
        kinds = {n for n, each in enumerate(matcher.kinds) if each.outbox == index}
        due = (
            (number, row)
            for number, row in matcher.rows_until(until)
            if row.kind in kinds and number not in self._claims
        )
        found = list(islice(due, _MOST))
        if of.store.cold and len(found) < _MOST:
            most = len(found) + len(self._claims) + _MOST
            for number, row in of.store.cold_until(until, kinds, most):
                gone = (number.to_bytes(16), row.position) in matcher.gone_rows
                if number not in matcher.rows and not gone:
                    matcher.rows[number] = row
                    of.store.cold -= 1
                    found.append((number, row))
        return found

    def _is_passed(self, number: int, row: Row, told: Evidence | None, grace: int) -> bool:
        of, matcher = self._of, self._of.matcher
        if told is None:
            return True  # relays remove only what is published
        if told.parked:
            matcher.parked.add(number)
            of.store.park([number], of.now())
            return False
        if told.passed is None:
            return matcher.topics[matcher.kinds[row.kind].topic].newest - row.appended >= grace
        return told.passed

    def _say_waiting(self, index: int, waits: Mapping[int, int]) -> None:
        of, outbox = self._of, self._of.plan.outboxes[index]
        name = f"waiting {outbox.part}"
        if not waits:
            of.troubles.pop(name, None)
            return
        names = of.readers[index].relays()
        oldest = (wall() - min(waits.values())) / 1000
        known = [
            each
            for each in names
            if each == outbox.relay or each.startswith(f"{outbox.relay}.shard-")
        ]
        more = (
            ""
            if known or not names
            else f"; no relay is named {outbox.relay!r}, and these are: {', '.join(names[:5])}: "
            "set `name` of this source"
        )
        of.troubles[name] = (
            f"{outbox.part}: {len(waits)} events or more wait for the relay, the oldest since "
            f"{oldest:.0f} s: they are not lost; see `dovecote relay status`{more}"
        )

    def _settle_claims(self) -> None:
        of, matcher = self._of, self._of.matcher
        stuck: dict[str, str] = {}
        for number, (topic, ends, since) in list(self._claims.items()):
            row = matcher.rows.get(number)
            if row is None:
                del self._claims[number]
                continue
            places = of.topics.positions.get(topic, {})
            short = [p for p, end in ends.items() if places.get(p, 0) < end]
            if short:
                if of.now() - since > _STUCK:
                    stuck[f"end of topic/{matcher.topics[topic].name}"] = (
                        f"topic {matcher.topics[topic].name!r} cannot be read to its end in "
                        f"partition {short[0]} ({places.get(short[0], 0)} of {ends[short[0]]}): a "
                        "transaction is open, or the broker is slow"
                    )
                continue
            del self._claims[number]
            self._missing(number, row, topic)
        for name in [each for each in of.troubles if each.startswith("end of topic/")]:
            del of.troubles[name]
        of.troubles.update(stuck)

    def _missing(self, number: int, row: Row, topic: int) -> None:
        of, matcher = self._of, self._of.matcher
        kind, known = matcher.kinds[row.kind], matcher.topics[topic]
        reader = of.readers[kind.outbox]
        told = of.guarded(
            f"asking {of.plan.outboxes[kind.outbox].part}",
            lambda: of.sources.evidence(kind.outbox, [(number, row)]),
        )
        if told is None:
            return
        one = told.get(row.position)
        if one is not None and one.parked:
            matcher.parked.add(number)
            matcher.postpone(number, of.now())
            return
        config = of.configs[topic].config if topic in of.configs else {}
        key = None if one is None else one.key
        superseded = "compact" in config.get("cleanup.policy", "")
        # The log and rows that are gone do not say what came later of a key: this proves no loss.
        if superseded and row.position < LOG and key is not None:
            later = of.guarded(
                "compaction", lambda: reader.has_successor(known.name, key, row.position)
            )
            if later is None:
                matcher.postpone(number, of.now())
                return
            superseded = later
        what = of_row(
            Open(
                appended=row.appended,
                was_parked=number in matcher.parked,
                anew_at=known.anew_at,
                gaps=of.gaps_of(topic),
                kept_for=_kept_for(config),
                superseded=superseded,
                now=wall(),
            )
        )
        matcher.drop_row(number)
        if what == "dropped":
            known.counts.dropped += 1
        elif what != "lost":
            known.counts.unjudged += 1
        else:
            reason = "the relay has passed its row, and the topic has no record of it"
            self.add(self._finding("lost", (number, row, key), [known.name], reason))

    def _late(self) -> None:
        matcher = self._of.matcher
        for topic, (late, number, row, record) in matcher.late.items():
            count = matcher.topics[topic].counts.late
            reason = f"{count} records came late, the latest {late / 1000:.1f} s after its commit"
            self.add(
                self._finding(
                    "late", (number, row, record.key), [self._place(record)], reason, count=count
                )
            )
        matcher.late.clear()


def _row_place(schema: str, position: int) -> str:
    if position >= LOG:
        return f"{schema}.log/{position - LOG}"
    return f"{schema}.events/{position}"


def _kept_for(config: Mapping[str, str]) -> int | None:
    """Return how long a topic keeps records for certain, in milliseconds; None: nobody knows."""
    if "retention.ms" not in config:
        return None
    if config.get("retention.bytes", "-1") != "-1" and "delete" in config.get(
        "cleanup.policy", ""
    ):
        return None
    kept = int(config["retention.ms"])
    return _NEVER if kept < 0 or "delete" not in config.get("cleanup.policy", "delete") else kept
