"""Show in `/readyz`, in metrics and in `--check` what has become of the tokens for Kafka."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dovecote.process.health import HealthReport, Ready
from dovecote.process.states import State
from outbox.errors import NoToken
from outbox.tokens.source import all_renewals, source_of

# How long `--check` waits for an answer.
_ASK_SECONDS = 5.0


class ReadyWithTokens:
    """
    A process's health, with what is wrong with its tokens.

    It is as ready as without: it goes on with the token that it has, and a restart would get none.
    """

    def __init__(self, health: Ready) -> None:
        self._health = health

    def ready(self) -> HealthReport:
        found = self._health.ready()
        troubles = [each.trouble for each in all_renewals() if each.trouble]
        said = [each for each in troubles if each not in found.reason]
        if not troubles:
            return found
        # Clients go on with what they have; but the part fails at what it tries.
        state = State.FAILING if found.state.is_green else found.state
        return replace(found, reason="; ".join([found.reason, *said]), state=state)


class TokenNumbers(Collector):
    """The metrics of the tokens of this process, and those of `others`."""

    def __init__(self, others: Collector | None = None) -> None:
        self._others = others

    def collect(self) -> Iterator[Metric]:
        """Yield them; nothing of tokens where no client has an identity."""
        if self._others is not None:
            yield from self._others.collect()
        found = list(all_renewals())
        if not found:
            return
        expiry = GaugeMetricFamily(
            "dovecote_kafka_token_expiry_seconds",
            "When the present token for Kafka expires, in seconds since 1970; 0: there is none.",
            labels=["provider"],
        )
        renewed = CounterMetricFamily(
            "dovecote_kafka_token_renewals",
            "Tokens for Kafka that a provider has given.",
            labels=["provider"],
        )
        failed = CounterMetricFamily(
            "dovecote_kafka_token_failures",
            "Attempts to get a token for Kafka that failed.",
            labels=["provider"],
        )
        for provider in sorted({each.provider for each in found}):
            own = [each for each in found if each.provider == provider]
            # The one that expires first is the one to be warned of.
            expiry.add_metric([provider], min(each.expires for each in own))
            renewed.add_metric([provider], sum(each.renewed for each in own))
            failed.add_metric([provider], sum(each.failed for each in own))
        yield from (expiry, renewed, failed)


def asked(clients: Iterable[Mapping[str, Any]]) -> str:
    """
    Ask for a token for each of `clients`; return what to add to the answer of `--check`.

    Raises:
        BadSettings: a provider refuses to give one.
    """
    said: list[str] = []
    for each in clients:
        if (source := source_of(each)) is None:
            continue
        try:
            source.require(_ASK_SECONDS)
        except NoToken as error:
            said.append(f"but {error}")
        else:
            said.append(f"{source.name} gives a token")
    return "".join(f"; {each}" for each in dict.fromkeys(said))
