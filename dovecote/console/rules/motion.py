"""Tell from samples how fast each part goes, since when it is how it is, and whether it moves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dovecote.console.rules.facts import Samples, SubscriptionFacts
from dovecote.console.rules.judging import Motion
from dovecote.console.rules.plan import Plan

_SPAN = 10.0
"""A rate is that of the last seconds, so many of them."""


@dataclass(frozen=True, slots=True)
class Count:
    """How much a part had done when it was asked, and how much waited."""

    at: float
    done: float
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Track:
    """The memory of one count."""

    last: Count
    base: Count
    """The one from which the rate is counted."""
    rate: float | None = None
    moved_at: float | None = None
    calm_at: float = 0.0
    """When it last moved, or nothing waited."""


def followed(track: Track | None, count: Count) -> Track:
    """
    Return what is remembered after one more count; a count that fell began anew.

    So does one from before the last: the clock was set back.
    """
    if track is None or count.at < track.last.at:
        return Track(count, count, calm_at=count.at)
    if count.at == track.last.at:
        return track
    if count.done < track.last.done:
        return Track(count, count, None, track.moved_at, count.at)
    moved = count.done > track.last.done
    rate = (count.done - track.base.done) / (count.at - track.base.at)
    base = track.last if count.at - track.base.at >= _SPAN else track.base
    return Track(
        count,
        base,
        rate,
        count.at if moved else track.moved_at,
        count.at if moved or not count.waits else track.calm_at,
    )


def motion(track: Track | None, now: float) -> Motion:
    """Return how a part moves."""
    if track is None:
        return Motion()
    still = now - track.calm_at if track.last.waits else None
    moved = None if track.moved_at is None else now - track.moved_at
    return Motion(track.rate, still, moved)


def counts(  # noqa: C901  # one loop for each kind
    plan: Plan, samples: Samples
) -> Iterable[tuple[str, Count]]:
    """Yield what is counted of each part, by its id."""
    for cluster, heard in samples.clusters.items():
        if heard.value is None or heard.at is None:
            continue
        for name, found in heard.value.topics.items():
            if found.end is not None:
                yield topic_key(cluster, name), Count(heard.at, found.end)
    for reader in plan.readers:
        heard = samples.clusters[reader.cluster]
        group = None if heard.value is None else heard.value.groups.get(reader.group)
        if group is not None and heard.at is not None:
            yield reader.id, Count(heard.at, group.committed, any(group.lag.values()))
        elif reader.kind == "spark":
            yield from _of_processes(reader.id, reader.urls, samples)
    for outbox in plan.outboxes:
        yield from _of_processes(f"outbox/{outbox.name}", outbox.urls, samples)
        for url in outbox.urls:
            yield from _of_processes(relay_id(outbox.name, url), [url], samples)
    for push in plan.pushes:
        told = samples.pushes.get(push.name)
        if told is None or told.value is None or told.at is None:
            continue
        for each in told.value:
            count = Count(told.at, each.delivered, bool(each.lag))
            yield subscription_id(push.name, each), count


def _of_processes(id_: str, urls: Iterable[str], samples: Samples) -> Iterable[tuple[str, Count]]:
    heard = [samples.processes[each] for each in urls if each in samples.processes]
    told = [(each.at, each.value) for each in heard if each.at is not None and each.value]
    done = [value.done for _, value in told if value.done is not None]
    if done:
        waits = any((value.lag_events or 0) > 0 for _, value in told)
        yield id_, Count(max(at for at, _ in told), sum(done), waits)


def topic_key(cluster: str, name: str) -> str:
    """Return the id of a topic: clusters besides the first one have their name in it."""
    return f"topic/{name}" if cluster == FIRST else f"topic/{cluster}/{name}"


def relay_id(outbox: str, where: str) -> str:
    """Return the id of a relay, by its URL or the name of its shard."""
    return f"relay/{outbox}/{where.rpartition('//')[2]}"


def subscription_id(push: str, found: SubscriptionFacts) -> str:
    """Return the id of a subscription."""
    return f"push/{push}/{found.id}"


FIRST = "kafka"
"""The name of the cluster that most parts have."""


class Memory:
    """Remembers counts and states from one sample to the next, of the parts that are there."""

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}
        self._states: dict[str, tuple[str, float]] = {}

    def follow(self, found: Iterable[tuple[str, Count]]) -> None:
        """Take the counts of all parts."""
        self._tracks = {id_: followed(self._tracks.get(id_), count) for id_, count in found}

    def motion(self, id_: str, now: float) -> Motion:
        """Return how a part moves."""
        return motion(self._tracks.get(id_), now)

    def settle(self, states: Mapping[str, str], now: float) -> None:
        """Take the states of all parts."""
        anew = ("", now)
        self._states = {
            # A state cannot have begun later than now, but before the clock was set back.
            id_: (state, min(since, now) if state == before else now)
            for id_, state in states.items()
            for before, since in [self._states.get(id_, anew)]
        }

    def since(self, id_: str, now: float) -> float:
        """Return since when a part is in its state, in seconds since 1970."""
        return self._states.get(id_, ("", now))[1]
