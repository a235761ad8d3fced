"""Ask every source in a thread of its own, each with its own pace, and keep what it said last."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from dovecote.console.planning import plan
from dovecote.console.rules.facts import Heard, Samples, SubscriptionFacts
from dovecote.console.rules.plan import Plan
from dovecote.console.settings import ConsoleSettings
from dovecote.console.sources.cluster import ClusterSource
from dovecote.console.sources.outbox import OutboxDesk
from dovecote.console.sources.processes import ProcessSource
from dovecote.console.sources.pushed import PushApi
from outbox.errors import BadSettings, DovecoteError

_log = logging.getLogger("dovecote.console")

T = TypeVar("T")

_SHARE = 100
"""A source rests so many times as long as the console worked on its answer."""
_MOST_REST = 20.0
"""But it is asked at least this often, in seconds."""
_LAG_EVERY = 15.0
"""How often progress is read from Kafka for an outbox whose relays do not tell their lag."""
MOST_SOURCES = 200
"""Each has a thread."""


class Beat(Generic[T]):
    """Asks one source again and again, until it is told to end."""

    def __init__(  # noqa: PLR0917  # what a source is asked with
        self,
        name: str,
        ask: Callable[[], T],
        every: float,
        end: threading.Event,
        turned: threading.Event,
        states: Callable[[T], object] = lambda _: None,
    ) -> None:
        """
        Prepare to ask.

        `turned` is set if the source no longer answers, or answers again, or if what `states`
        makes of its answer is another than before.
        """
        self.name, self._ask, self._every, self._end = name, ask, every, end
        self._turned, self._states = turned, states
        self._heard: Heard[T] = Heard()
        self.asked = self.failed = 0
        self.took = 0.0
        self._thread = threading.Thread(target=self._run, name=f"ask {name}", daemon=True)

    @property
    def heard(self) -> Heard[T]:
        """Its last word."""
        return self._heard

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._end.is_set():
            began, worked = time.monotonic(), time.thread_time()
            self._once()
            self.took = time.monotonic() - began
            cost = (time.thread_time() - worked) * _SHARE
            rest = max(self._every - self.took, min(cost, _MOST_REST), self._every / 4)
            self._end.wait(rest)

    def _once(self) -> None:
        self.asked += 1
        try:
            value = self._ask()
        except Exception as error:  # noqa: BLE001  # the source is unknown, and this is why
            self.failed += 1
            known = isinstance(error, DovecoteError)
            if not known:
                _log.exception("%s was not understood", self.name)
            said = str(error) if known else f"{type(error).__name__}: {error}"
            now = time.time()
            if not self._heard.error:
                _log.warning("%s: %s", self.name, said)
            since = self._heard.failing or now
            turned = not self._heard.error
            self._heard = replace(self._heard, error=said[:1_000], failing=since)
        else:
            again, before = bool(self._heard.error), self._heard.value
            if again:
                _log.info("%s answers again", self.name)
            turned = again or before is None or self._states(value) != self._states(before)
            self._heard = Heard(value, time.time())
        if turned:
            self._turned.set()


@dataclass(frozen=True, slots=True)
class Beats:
    """All sources, by the names that `Samples` has for them."""

    clusters: Mapping[str, Beat]  # type: ignore[type-arg]  # of several types
    outboxes: Mapping[str, Beat]  # type: ignore[type-arg]
    lags: Mapping[str, Beat]  # type: ignore[type-arg]
    processes: Mapping[str, Beat]  # type: ignore[type-arg]
    pushes: Mapping[str, Beat]  # type: ignore[type-arg]

    def all(self) -> list[tuple[str, Beat]]:  # type: ignore[type-arg]
        """Return each with the kind of its server."""
        kinds = {
            "kafka": self.clusters,
            "postgres": self.outboxes,
            "lag": self.lags,
            "process": self.processes,
            "push": self.pushes,
        }
        return [(kind, each) for kind, beats in kinds.items() for each in beats.values()]


class Watch:
    """All sources of a settings file, asked while a block runs."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """
        Prepare to ask; nothing is asked before `start`.

        Raises:
            BadSettings: there are more sources than threads for them.
        """
        self._end = threading.Event()
        self.turned = threading.Event()
        """Set whenever a source or a subscription is in another state than before."""
        every = settings.console.every.total_seconds()
        timeout = settings.console.timeout.total_seconds()
        sources = settings.sources
        names, clusters = _clusters(settings)
        self.plan: Plan = plan(sources, names)
        groups: dict[str, dict[str, tuple[str, ...]]] = {each: {} for each in clusters}
        for name, each in sources.consumer.items():
            groups[names[f"consumer/{name}"]][each.group] = each.topics
        self.kafka = {
            name: ClusterSource(kafka, groups[name], timeout) for name, kafka in clusters.items()
        }
        self.desks = {name: OutboxDesk(each, timeout) for name, each in sources.outbox.items()}
        lag_desks = {
            name: OutboxDesk(each, timeout)
            for name, each in sources.outbox.items()
            if not each.metrics
        }
        self.push = {
            name: PushApi(each, timeout) for name, each in sources.push.items() if each.url
        }
        self.asking = {url: ProcessSource(kind, url, timeout) for kind, url in self.plan.urls()}
        beat = self._beat
        self.beats = Beats(
            {name: beat(f"kafka/{name}", _topics_of(self, name), every) for name in self.kafka},
            {name: beat(f"outbox/{name}", desk.ask, every) for name, desk in self.desks.items()},
            {
                name: beat(f"the lag of outbox/{name}", desk.lag, max(every, _LAG_EVERY))
                for name, desk in lag_desks.items()
            },
            {url: beat(url, each.ask, every) for url, each in self.asking.items()},
            {
                name: beat(f"push/{name}", api.ask, every, states_of)
                for name, api in self.push.items()
            },
        )
        self._desks = [*self.desks.values(), *lag_desks.values()]
        if (many := len(self.beats.all())) > MOST_SOURCES:
            msg = (
                f"the file names {many} servers and processes, and one console asks at most "
                f"{MOST_SOURCES}: name fewer in `metrics`, or start several consoles"
            )
            raise BadSettings(msg)

    def start(self) -> None:
        """Begin to ask."""
        for _, each in self.beats.all():
            each.start()

    def stop(self) -> None:
        """Stop asking; requests that are under way are waited for within their limits."""
        self._end.set()
        for _, each in self.beats.all():
            each.join(5.0)
        for desk in self._desks:
            desk.close()
        for cluster in self.kafka.values():
            cluster.close()

    def samples(self) -> Samples:
        """Return what all sources said last."""
        beats = self.beats
        return Samples(
            {name: each.heard for name, each in beats.clusters.items()},
            {name: each.heard for name, each in beats.outboxes.items()},
            {name: each.heard for name, each in beats.lags.items()},
            {name: each.heard for name, each in beats.processes.items()},
            {name: each.heard for name, each in beats.pushes.items()},
        )

    def wanted(self, cluster: str) -> set[str]:
        """Return the topics of a cluster that some part reads or writes, as known by now."""
        found: set[str] = set()
        for reader in self.plan.readers:
            if reader.cluster == cluster:
                found.update(reader.topics, reader.writes)
        for outbox in self.plan.outboxes:
            if outbox.cluster != cluster:
                continue
            found.add(outbox.progress)
            facts = self.beats.outboxes[outbox.name].heard.value
            found.update(() if facts is None else facts.topics)
            for url in outbox.urls:
                told = self.beats.processes[url].heard.value
                found.update(() if told is None else told.published)
        for push in self.plan.pushes:
            if push.cluster == cluster and push.name in self.beats.pushes:
                for each in self.beats.pushes[push.name].heard.value or ():
                    found.update(each.topics)
        return found

    def _beat(
        self,
        name: str,
        ask: Callable[[], T],
        every: float,
        states: Callable[[T], object] = lambda _: None,
    ) -> Beat[T]:
        return Beat(name, ask, every, self._end, self.turned, states)


def states_of(found: Iterable[SubscriptionFacts]) -> dict[str, object]:
    """Return the state of each subscription, by its name."""
    return {each.id: each.state for each in found}


def _topics_of(watch: Watch, name: str) -> Callable[[], object]:
    return lambda: watch.kafka[name].ask(watch.wanted(name))


def _clusters(settings: ConsoleSettings) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    """Return the name of the cluster of each part, and the properties of each cluster."""
    found: dict[str, Mapping[str, str]] = {}
    by_servers: dict[str, str] = {}
    names: dict[str, str] = {}
    sources = settings.sources
    parts = [
        *((f"consumer/{name}", each.kafka) for name, each in sources.consumer.items()),
        *((f"outbox/{name}", each.kafka) for name, each in sources.outbox.items()),
        *((f"spark/{name}", each.kafka) for name, each in sources.spark.items()),
        *((f"push/{name}", each.kafka) for name, each in sources.push.items()),
    ]
    if settings.kafka:
        parts.insert(0, ("", settings.kafka))
    for part, kafka in parts:
        servers = kafka.get("bootstrap.servers", "")
        if not servers:
            if part.startswith("push/"):
                # Its topics are drawn on the first cluster, as far as that has them.
                names[part] = "kafka"
                continue
            msg = f'{part}: "bootstrap.servers" is missing: give it in [kafka] of the file'
            raise BadSettings(msg)
        if servers not in by_servers:
            name = "kafka" if not by_servers else f"kafka{len(by_servers) + 1}"
            by_servers[servers], found[name] = name, kafka
        names[part] = by_servers[servers]
    return names, found
