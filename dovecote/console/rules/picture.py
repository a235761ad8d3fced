"""Put the picture of the flow together: parts, the ways between them, and what is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dovecote.console.rules import causes, judging
from dovecote.console.rules.facts import ClusterFacts, Heard, OutboxLag, Samples
from dovecote.console.rules.judging import Judged, Motion, worst
from dovecote.console.rules.motion import Memory, relay_id, subscription_id, topic_key
from dovecote.console.rules.plan import OutboxPlan, Plan, PushPlan, ReaderPlan
from dovecote.console.shapes import EdgeShape, LagShape, NodeKind

_MOST_TOPICS_OF_OUTBOX = 1_000


@dataclass(slots=True)
class Drawn:
    """One part in the picture."""

    id: str
    kind: NodeKind
    name: str
    judged: Judged
    motion: Motion = field(default_factory=Motion)
    lag: LagShape | None = None
    role: str = ""
    group: str | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)


class Drawing:
    """The picture of one moment."""

    def __init__(  # noqa: PLR0917  # what a picture is made of
        self, plan: Plan, samples: Samples, memory: Memory, now: float, behind: float
    ) -> None:
        self._plan, self._samples, self._memory = plan, samples, memory
        self._now, self._behind = now, behind
        self.nodes: dict[str, Drawn] = {}
        self.edges: list[EdgeShape] = []
        self._readers: dict[str, list[str]] = {}
        """The parts that need a topic, by its id."""
        self._roles: dict[str, tuple[str, str]] = {}
        """The role of a topic, and the part that it belongs to."""
        self._wanted: dict[str, tuple[str, str]] = {}
        """The cluster and the name of each topic in the picture."""
        for outbox in plan.outboxes:
            self._outbox(outbox)
        for reader in plan.readers:
            self._reader(reader)
        for push in plan.pushes:
            self._push(push)
        for id_, (cluster, name) in self._wanted.items():
            self._topic(id_, cluster, name)

    def _processes(self, urls: Sequence[str]) -> list[Judged]:
        found = self._samples.processes
        return [judging.process(found.get(url, Heard()), url, self._now) for url in urls]

    def _cluster(self, name: str) -> Heard[ClusterFacts]:
        return self._samples.clusters.get(name, Heard())

    def _unheard(self, cluster: str) -> Judged | None:
        return judging.unheard(self._cluster(cluster), cluster, "Kafka does not answer", self._now)

    def _missing(self, cluster: str, topics: Sequence[str]) -> list[str]:
        found = self._cluster(cluster).fresh(self._now)
        if found is None:
            return []
        return [each for each in topics if each not in found.topics]

    def _want(self, cluster: str, name: str, by: str, *, role: str = "", of: str = "") -> str:
        id_ = topic_key(cluster, name)
        self._wanted[id_] = (cluster, name)
        self._readers.setdefault(id_, []).append(by)
        if role:
            self._roles.setdefault(id_, (role, of))
        return id_

    def _way(self, begin: str, end: str, rate: float | None) -> None:
        self.edges.append(EdgeShape({"from": begin, "to": end, "rate": _rounded(rate)}))

    def _outbox(self, plan: OutboxPlan) -> None:
        id_, now = f"outbox/{plan.name}", self._now
        motion = self._memory.motion(id_, now)
        heard = self._samples.outboxes.get(plan.name, Heard())
        judged_of = self._processes(plan.urls)
        named = [relay_id(plan.name, url) for url in plan.urls]
        relays: Mapping[str, Judged] = dict(zip(named, judged_of, strict=True))
        lag = self._lag(plan)
        found = heard.value
        judged = judging.unheard(heard, id_, "Postgres does not answer", now)
        if judged is None and found is not None:
            judged = judging.outbox(found, lag, motion, judged_of, self._behind)
            judged, relays = causes.of_outbox(id_, found, judged, relays)
        facts = [("shards", str(plan.shards))]
        if found is not None:
            facts.append(("standbys", str(sum(each.standbys for each in found.shards))))
            facts.append(("parked", str(sum(each.parked for each in found.shards))))
        node = Drawn(id_, "outbox", plan.name, judged or _STARTING, motion, facts=facts)
        if lag is not None:
            node.lag = LagShape(events=lag.rows, seconds=_rounded(lag.seconds))
            if lag.bytes is not None:
                node.facts.append(("unpublished log", f"{lag.bytes:,} bytes"))
        self.nodes[id_] = node
        self._relays(plan, relays)
        topics = dict.fromkeys([] if found is None else found.topics)
        for url in plan.urls:
            told = self._samples.processes.get(url, Heard()).value
            topics.update(dict.fromkeys({} if told is None else told.published))
        for name in list(topics)[:_MOST_TOPICS_OF_OUTBOX]:
            topic = self._want(plan.cluster, name, id_)
            self._way(id_, topic, self._memory.motion(topic, now).rate)
        progress = self._want(plan.cluster, plan.progress, id_, role="progress", of=id_)
        self._way(id_, progress, self._memory.motion(progress, now).rate)

    def _lag(self, plan: OutboxPlan) -> OutboxLag | None:
        """Return what waits: as the relays say, or as Postgres and Kafka did."""
        told = [self._samples.processes.get(url, Heard()).fresh(self._now) for url in plan.urls]
        active = [each for each in told if each is not None and each.role == "active"]
        rows = [each.lag_events for each in active if each.lag_events is not None]
        if rows:
            ages = [each.lag_seconds for each in active if each.lag_seconds is not None]
            return OutboxLag(int(sum(rows)), max(ages, default=None))
        return self._samples.lags.get(plan.name, Heard()).fresh(self._now)

    def _relays(self, plan: OutboxPlan, judged: Mapping[str, Judged]) -> None:
        group = f"outbox/{plan.name}"
        for url, (id_, found) in zip(plan.urls, judged.items(), strict=True):
            told = self._samples.processes.get(url, Heard()).value
            role = "" if told is None else told.role
            motion = self._memory.motion(id_, self._now)
            name = id_.rpartition("/")[2]
            self.nodes[id_] = Drawn(id_, "relay", name, found, motion, role=role, group=group)
        heard = self._samples.outboxes.get(plan.name, Heard())
        if plan.urls or heard.value is None:
            return
        for shard in heard.value.shards:
            id_ = relay_id(plan.name, shard.name)
            judged_of = judging.unheard(heard, group, "Postgres does not answer", self._now)
            if judged_of is None and shard.active:
                # The role is held, which does not show that anything is published.
                said = "it holds the role, and the file does not say where it serves /readyz"
                todo = "set `http.port` of the relay, and `metrics` of the outbox in the file"
                judged_of = Judged("unknown", said, todo)
            elif judged_of is None:
                judged_of = Judged("failing", "no relay holds the role", cause=group)
            role = "active" if shard.active else ""
            self.nodes[id_] = Drawn(id_, "relay", shard.name, judged_of, role=role, group=group)

    def _reader(self, plan: ReaderPlan) -> None:
        now = self._now
        motion = self._memory.motion(plan.id, now)
        processes = self._processes(plan.urls)
        missing = self._missing(plan.cluster, [*plan.topics, *plan.writes])
        heard = self._cluster(plan.cluster)
        away = self._unheard(plan.cluster)
        node = Drawn(plan.id, plan.kind, plan.name, _STARTING, motion)
        if plan.kind == "spark":
            node.judged = judging.spark(processes, missing)
            node.lag = self._told_lag(plan.urls)
        elif away is not None:
            node.judged = worst([*processes, away])
        else:
            found = heard.value
            group = None if found is None else found.groups.get(plan.group)
            node.judged = judging.reader(plan.kind, group, motion, processes, missing)
            if group is not None:
                told = self._told_lag(plan.urls)
                node.lag = LagShape(
                    events=sum(group.lag.values()), seconds=told["seconds"] if told else None
                )
                node.facts.append(("members", str(group.members)))
            node.facts.append(("group", plan.group))
        if away is None:
            ids = [topic_key(plan.cluster, each) for each in missing]
            node.judged = causes.of_topics(node.judged, ids)
        self.nodes[plan.id] = node
        for name in plan.topics:
            topic = self._want(plan.cluster, name, plan.id)
            self._way(topic, plan.id, motion.rate if len(plan.topics) == 1 else None)
        for name, role in plan.writes.items():
            topic = self._want(plan.cluster, name, plan.id, role=role, of=plan.id)
            self._way(plan.id, topic, self._memory.motion(topic, now).rate)
            if role == "retry":
                self._way(topic, plan.id, None)

    def _told_lag(self, urls: Sequence[str]) -> LagShape | None:
        """Return the lag that processes tell; what a silent one told last holds no more."""
        heard = [self._samples.processes.get(url, Heard()) for url in urls]
        found = [each.fresh(self._now) for each in heard if not each.error]
        rows = [each.lag_events for each in found if each and each.lag_events is not None]
        ages = [each.lag_seconds for each in found if each and each.lag_seconds is not None]
        if not rows and not ages:
            return None
        seconds = _rounded(max(ages, default=None))
        return LagShape(events=int(sum(rows)) if rows else None, seconds=seconds)

    def _push(self, plan: PushPlan) -> None:
        id_, now = f"push/{plan.name}", self._now
        heard = self._samples.pushes.get(plan.name, Heard())
        processes = self._processes(plan.urls)
        if not plan.has_api:
            said = "the file does not say where its API is"
            judged = Judged("unknown", said, "set `url` and `token` of this part in the file")
            self.nodes[id_] = Drawn(id_, "push", plan.name, judged)
            return
        away = judging.unheard(heard, id_, "push does not answer", now)
        each_judged: list[Judged] = []
        for found in heard.value or ():
            sub = subscription_id(plan.name, found)
            motion = self._memory.motion(sub, now)
            missing = self._missing(plan.cluster, found.topics)
            ids = [topic_key(plan.cluster, each) for each in missing]
            judged = away or judging.subscription(found, motion)
            judged = judged if judged.cause else causes.of_subscription(found, judged, ids)
            each_judged.append(judged)
            facts = [("endpoint", found.url), ("dead letters", str(found.dead))]
            lag = None if found.lag is None else LagShape(events=found.lag, seconds=None)
            self.nodes[sub] = Drawn(
                sub, "subscription", found.id, judged, motion, lag, group=id_, facts=facts
            )
            for name in found.topics:
                topic = self._want(plan.cluster, name, sub)
                self._way(topic, sub, motion.rate if len(found.topics) == 1 else None)
        judged = away or judging.push(each_judged, processes)
        facts = [("subscriptions", str(len(each_judged)))]
        self.nodes[id_] = Drawn(id_, "push", plan.name, judged, facts=facts)

    def _topic(self, id_: str, cluster: str, name: str) -> None:
        motion = self._memory.motion(id_, self._now)
        role, group = self._roles.get(id_, ("", None))
        judged = self._unheard(cluster)
        found = self._cluster(cluster).value
        facts = None if found is None else found.topics.get(name)
        if judged is None:
            judged = judging.topic(name, facts, motion, self._readers[id_])
        told = []
        if facts is not None:
            told = [("partitions", str(facts.partitions)), ("offsets kept", _shown(facts.kept))]
        self.nodes[id_] = Drawn(
            id_, "topic", name, judged, motion, role=role, group=group, facts=told
        )


_STARTING = Judged("starting", "it has not been asked yet")


def silent(samples: Samples) -> Iterator[tuple[str, Heard[object], str]]:
    """Yield each source besides the processes, its name and what it is."""
    for name, cluster in samples.clusters.items():
        yield name, cluster, "Kafka"
    for name, outbox in samples.outboxes.items():
        yield f"outbox/{name}", outbox, "Postgres"
    for name, push in samples.pushes.items():
        yield f"push/{name}", push, "push"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _shown(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
