"""How a process of push is, and how its subscriptions are."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovecote.process.health import HealthReport
from dovecote.process.proof import Proof
from dovecote.push.rules.condition import PushSeen, push
from dovecote.push.rules.sending.ports import DeliveryReport
from outbox.kafka import kafka_logger
from outbox.tokens.source import lasting

_log = kafka_logger("dovecote.push.kafka")

_SECONDS = 5.0
# Brokers make no topic of this name when they are asked for it.
_ALWAYS_THERE = "__consumer_offsets"
_STARTING = "starting"


@dataclass(slots=True)
class Health:
    """Whether this process knows what to deliver, and could deliver it."""

    failure: str = _STARTING
    since: float = field(default_factory=time.monotonic)
    brokers: Mapping[str, Proof] = field(default_factory=dict)
    reports: Mapping[str, DeliveryReport] = field(default_factory=dict)
    """The last report on each subscription of this process."""
    unrecorded: Callable[[], str] = str
    """Returns why attempts are not recorded; empty: they are."""
    is_ending: bool = False
    _followed: float = field(default_factory=time.monotonic)

    def ready(self) -> HealthReport:
        """
        Return whether the process follows what is stored.

        It is as ready while a broker is away: its API and its page are of use then, too.
        """
        brokers = [(name, each.seen()) for name, each in sorted(self.brokers.items())]
        seen = PushSeen(
            failure=self.failure,
            starting=self.failure == _STARTING,
            ending=self.is_ending,
            followed=time.monotonic() - self._followed,
            unrecorded=self.unrecorded(),
            brokers=[(name, each.seconds, each.trouble) for name, each in brokers],
            subscriptions=[each.condition().state for each in self.reports.values()],
        )
        state, reason = push(seen)
        return HealthReport(
            ok=not self.failure and not self.is_ending,
            role="delivering",
            reason=reason,
            state=state,
        )

    def say(self, failure: str) -> None:
        if not failure:
            self._followed = time.monotonic()
        if failure != self.failure:
            self.failure, self.since = failure, time.monotonic()

    def told(self, reports: Mapping[str, DeliveryReport]) -> None:
        """Take this process's reports on its subscriptions."""
        self.reports = reports

    @contextmanager
    def asking(self, brokers: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
        """Ask each broker now and then whether it answers, until the end of the block."""
        self.brokers = {name: _proof(kafka) for name, kafka in brokers.items()}
        with ExitStack() as stack:
            for each in self.brokers.values():
                stack.enter_context(each.at_work())
            yield


class SubscriptionNumbers(Collector):
    """The metric of the subscriptions' states, after those of `others`."""

    def __init__(
        self, reports: Callable[[], Mapping[str, DeliveryReport]], others: Collector
    ) -> None:
        self._reports, self._others = reports, others

    def collect(self) -> Iterator[Metric]:
        """Yield them; a subscription shows the one state that it is in, because there are many."""
        yield from self._others.collect()
        told = GaugeMetricFamily(
            "dovecote_push_subscription_state",
            "1 for the state that a subscription is in here, by `state`; the others are left out.",
            labels=["subscription", "state"],
        )
        for id_, each in sorted(self._reports().items()):
            told.add_metric([id_, each.condition().state.value], 1.0)
        yield told


def _proof(kafka: Mapping[str, str]) -> Proof:
    made: list[AdminClient] = []

    def ask() -> str:
        if not made:
            made.append(lasting(AdminClient, kafka, _log))
        try:
            made[0].list_topics(_ALWAYS_THERE, _SECONDS)
        except KafkaException as error:
            return f"{error.args[0].str()}"
        return ""

    return Proof(ask, close=made.clear)
