"""Decide what a batch reads: up to which offsets, and which task reads which of them."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple, Self, TypeAlias

from outbox.kafka import topic_id
from spark_jobs.errors import SourceChanged
from spark_jobs.source.topics import belongs, entry_of

Ends: TypeAlias = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""

_ID = "id"
_MOST_SHOWN = 8
# No topic has this name.
_WOKEN = "#woken"


class Range(NamedTuple):
    """The records of a partition from the offset `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """
    How far a query has read, as it stands in Spark's log of offsets.

    Its JSON is that of Spark's own Kafka source, with the id of each topic beside its partitions:
    a topic that was deleted and made anew has other records at the same offsets.
    """

    ends: Ends
    ids: Mapping[str, str] = field(default_factory=dict)
    woken: int = 0
    """How often all buckets were stepped, records or not; a batch does it in which this rises."""

    def fields(self) -> dict[str, Any]:
        """Return the JSON; the same offsets have the same text, which Spark compares."""
        found: dict[str, Any] = {_WOKEN: {"times": self.woken}} if self.woken else {}
        for topic in sorted(self.ends):
            partitions = self.ends[topic]
            found[topic] = {str(each): partitions[each] for each in sorted(partitions)}
            if topic in self.ids:
                found[topic][_ID] = self.ids[topic]
        return found

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return the offsets in the JSON `fields`."""
        ends = {
            topic: {int(each): int(end) for each, end in partitions.items() if each != _ID}
            for topic, partitions in fields.items()
            if topic != _WOKEN
        }
        ids = {topic: each[_ID] for topic, each in fields.items() if _ID in each}
        return cls(ends, ids, fields.get(_WOKEN, {}).get("times", 0))

    @classmethod
    def decode(cls, text: str) -> Self:
        return cls.of(json.loads(text))

    def encode(self) -> str:
        return json.dumps(self.fields(), separators=(",", ":"))

    def topic_ids(self) -> dict[str, str]:
        """Return the ids as Kafka's own tools write them, for the identities of records."""
        told = {topic: topic_id(id_) for topic, id_ in self.ids.items()}
        return {topic: id_ for topic, id_ in told.items() if id_ is not None}

    def of_topics(self, entries: Collection[str]) -> Self:
        """Return the offsets of the topics that `entries`, names and patterns, mean."""
        return self.without({topic for topic in self.ends if not belongs(topic, entries)})

    def without(self, topics: Collection[str]) -> Self:
        """Return the offsets of all other topics than `topics`."""
        return replace(
            self,
            ends={topic: ends for topic, ends in self.ends.items() if topic not in topics},
            ids={topic: id_ for topic, id_ in self.ids.items() if topic not in topics},
        )


def begin(wanted: str, earliest: Offsets, latest: Offsets) -> Offsets:
    """
    Return where a new query begins.

    `wanted` is `earliest`, `latest`, or JSON of offsets by topic and partition, in which -2 means
    the earliest offset and -1 the latest. A partition that the JSON lacks begins at its earliest.

    Raises:
        SourceChanged: the JSON names a topic or a partition that does not exist, or an offset
            after its end.
    """
    if wanted == "earliest":
        return earliest
    if wanted == "latest":
        return latest
    given: dict[str, dict[str, int]] = json.loads(wanted)
    ends = {topic: dict(partitions) for topic, partitions in earliest.ends.items()}
    for topic, partitions in given.items():
        for partition, offset in partitions.items():
            at = latest if offset == -1 else earliest
            first = at.ends.get(topic, {}).get(int(partition))
            if first is None:
                msg = (
                    f"source.starting_offsets names {topic}/{partition}, which does not exist or "
                    "is not read: correct it"
                )
                raise SourceChanged(msg)
            end = latest.ends.get(topic, {}).get(int(partition), 0)
            if offset > end:
                msg = (
                    f"source.starting_offsets names offset {offset} of {topic}/{partition}, which "
                    f"ends at {end}: write an offset up to {end}, or -1 for its end"
                )
                raise SourceChanged(msg)
            ends.setdefault(topic, {})[int(partition)] = first if offset < 0 else offset
    return Offsets(ends, earliest.ids)


def require_same(start: Offsets, found: Offsets, entries: Collection[str] = ()) -> None:
    """
    Make sure that the topics are those from which the query has read up to `start`.

    `entries` are those of `source.topics`, for a message that says how to take a topic out.

    Raises:
        SourceChanged: a topic is gone, was made anew, or has lost a partition.
    """
    for topic, partitions in start.ends.items():
        there = found.ends.get(topic)
        if there is None:
            by = entry_of(topic, entries)
            out = (
                "take it out of source.topics"
                if by in {None, topic}
                else f'add "!{topic}" to source.topics, which takes it out of {by},'
            )
            msg = (
                f"topic {topic} is gone: the job has read a part of it. Put it back, or {out} and "
                "run once with --adopt"
            )
            raise SourceChanged(msg)
        was, now = start.ids.get(topic), found.ids.get(topic)
        if (was and now and was != now) or not partitions.keys() <= there.keys():
            msg = (
                f"topic {topic} was deleted and made anew since this checkpoint read it: its "
                "offsets mean other records. Give the job a new spark.checkpoint and run once "
                "with --adopt; source.starting_offsets says where it begins"
            )
            raise SourceChanged(msg)


def cut_off(start: Offsets, latest: Offsets) -> Range | None:
    """
    Return what a query has read and the topic no longer holds at its end; None: nothing.

    A broker that was the leader, or is behind, answers with less for a moment.
    """
    for topic, partitions in start.ends.items():
        for partition, read in partitions.items():
            end = latest.ends[topic].get(partition, read)
            if end < read:
                return Range(topic, partition, end, read)
    return None


def limited(start: Offsets, latest: Offsets, earliest: Offsets, most: int | None) -> Offsets:
    """
    Return the end of the batch after `start`: at most about `most` records, in fair shares.

    A partition gets the share of `most` that it has of all waiting records, and at least one. A
    partition that is new is noted at its earliest offset, and is read from the next batch on. If
    `earliest` lacks it, it is not there yet: a broker may learn of a new topic after another one.
    """
    waiting = {
        (topic, partition): max(0, end - start.ends[topic][partition])
        for topic, partitions in latest.ends.items()
        for partition, end in partitions.items()
        if partition in start.ends.get(topic, {})
    }
    total = sum(waiting.values())
    share = 1.0 if most is None or total <= most else most / total
    ends: dict[str, dict[int, int]] = {}
    for topic, partitions in latest.ends.items():
        found: dict[int, int] = {}
        for partition in partitions:
            records = waiting.get((topic, partition))
            if records is not None:
                taken = records if share == 1.0 else min(records, max(1, int(records * share)))
                found[partition] = start.ends[topic][partition] + taken
            elif partition in (beginnings := earliest.ends.get(topic, {})):
                found[partition] = beginnings[partition]
        if found or topic in start.ends:
            ends[topic] = found
    ids = {**start.ids, **latest.ids}
    return Offsets(ends, {topic: id_ for topic, id_ in ids.items() if topic in ends})


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """Return what a batch reads, in the order of topic and partition."""
    return [
        Range(topic, partition, first, last)
        for topic in sorted(end.ends)
        for partition, last in sorted(end.ends[topic].items())
        if (first := start.ends.get(topic, {}).get(partition, last)) < last
    ]


def shown(plan: Sequence[Range]) -> str:
    """Return where the records of a batch are, for a message."""
    told = [f"{t}/{p} from offset {start} to {end - 1}" for t, p, start, end in plan[:_MOST_SHOWN]]
    if len(plan) > _MOST_SHOWN:
        told.append(f"{len(plan) - _MOST_SHOWN} more")
    return ", ".join(told) or "no records"


def digest(plan: Iterable[Range], ids: Mapping[str, str]) -> str:
    """Return a digest of what a batch reads: the same ranges of the same topics have the same."""
    text = json.dumps([[*each, ids.get(each.topic, "")] for each in plan])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def by_lane(plan: Iterable[Range], lanes: int) -> dict[int, list[Range]]:
    """Return the ranges of each lane that has any: a partition belongs to lane p mod `lanes`."""
    found: dict[int, list[Range]] = {}
    for each in plan:
        found.setdefault(each.partition % lanes, []).append(each)
    return found


def shared_out(plan: Sequence[Range], tasks: int) -> list[list[Range]]:
    """Return `plan` in at most `tasks` parts of about the same number of offsets."""
    parts: list[list[Range]] = [[] for _ in range(min(tasks, len(plan)))]
    sizes = [0] * len(parts)
    for each in sorted(plan, key=lambda each: (each.start - each.end, each)):
        least = sizes.index(min(sizes))
        parts[least].append(each)
        sizes[least] += each.end - each.start
    return [sorted(part) for part in parts]
