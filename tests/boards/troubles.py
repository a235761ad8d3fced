"""Say which alerts fire in which trouble, as series of a healthy system that change."""

from collections.abc import Mapping
from dataclasses import dataclass, field

BEGINS = 30
"""The minute at which a trouble begins."""
LASTS = 90
"""For how many minutes a trouble lasts that does not end by itself."""

RELAY, STANDBY = (
    f'outbox="shop", job="dovecote-relay", instance="relay-{number}"' for number in (1, 2)
)
CONSUMER = 'group="shipping", job="dovecote-consumer", instance="consumer-1"'
PLACE = f'topic="orders", partition="0", {CONSUMER}'
PUSH = 'subscription="billing", job="dovecote-push", instance="push-1"'
SPARK = 'query="days", job="dovecote-spark", instance="spark-1"'
READ = f'topic="orders", partition="0", {SPARK}'
TOKEN = 'provider="oidc", job="dovecote-relay", instance="relay-1"'


# promtool knows no repetition of this one.
UNKNOWN = " ".join(["NaN"] * (BEGINS + LASTS + 1))


def steady(value: float) -> str:
    """Return the same value all the time."""
    return f"{value}x{BEGINS + LASTS}"


def counting(a_minute: float) -> str:
    """Return a counter."""
    return f"0+{a_minute}x{BEGINS + LASTS}"


def then(before: float, after: float) -> str:
    """Return a value that is another one from the trouble on."""
    return f"{before}x{BEGINS - 1} {after}x{LASTS}"


def faster(before: float, after: float) -> str:
    """Return a counter that counts at another rate from the trouble on."""
    reached = before * (BEGINS - 1)
    return f"0+{before}x{BEGINS - 1} {reached + after}+{after}x{LASTS}"


def briefly(usual: float, meanwhile: float, *, minutes: int) -> str:
    """Return a value that is another one for some minutes."""
    rest = LASTS - minutes
    return f"{usual}x{BEGINS - 1} {meanwhile}x{minutes - 1} {usual}x{rest}"


def gone() -> str:
    """Return a series that ends when the trouble begins."""
    return f"1x{BEGINS - 1} stale _x{LASTS - 1}"


def stopped_clock() -> str:
    """Return the time of the newest progress, which stands still from the trouble on."""
    return f"0+60x{BEGINS - 1} {60 * (BEGINS - 1)}x{LASTS}"


def restarted(a_minute: float) -> str:
    """Return a counter that begins anew."""
    return f"0+{a_minute}x{BEGINS - 1} 0+{a_minute}x{LASTS}"


def outcomes(name: str, label: str, of: str, **rates: float) -> dict[str, str]:
    """Return the counters of several outcomes, each with its rate."""
    return {f'{name}{{{label}="{each}", {of}}}': counting(rates[each]) for each in rates}


HEALTHY: Mapping[str, str] = {
    **{
        f'up{{job="dovecote-{part}", instance="{part}-{number}"}}': steady(1)
        for part in ("relay", "consumer", "push", "spark")
        for number in (1, 2)
        if part != "spark" or number == 1
    },
    f"dovecote_kafka_token_expiry_seconds{{{TOKEN}}}": "3600+60x120",
    f"dovecote_kafka_token_failures_total{{{TOKEN}}}": counting(0),
    f"dovecote_relay_active{{{RELAY}}}": steady(1),
    f"dovecote_relay_active{{{STANDBY}}}": steady(0),
    f"dovecote_relay_last_progress_timestamp_seconds{{{RELAY}}}": "0+60x120",
    f"dovecote_relay_last_progress_timestamp_seconds{{{STANDBY}}}": steady(0),
    f"dovecote_relay_lag_seconds{{{RELAY}}}": steady(0.1),
    f"dovecote_relay_lag_seconds{{{STANDBY}}}": UNKNOWN,
    f"dovecote_relay_parked{{{RELAY}}}": steady(0),
    f"dovecote_relay_parked{{{STANDBY}}}": UNKNOWN,
    f"dovecote_relay_slot_retained_bytes{{{RELAY}}}": steady(1_000_000),
    f"dovecote_relay_slot_limit_bytes{{{RELAY}}}": UNKNOWN,
    f'dovecote_relay_rotation_delayed_seconds{{cause="locked", {RELAY}}}': steady(0),
    **outcomes(
        "dovecote_relay_failures_total", "kind", RELAY, outage=0, fenced=0, lease_lost=0
    ),
    f"dovecote_consumer_partitions{{{CONSUMER}}}": steady(4),
    f"dovecote_consumer_lag_seconds{{{PLACE}}}": steady(0.2),
    f"dovecote_consumer_lag_rows{{{PLACE}}}": steady(3),
    # Records of a retry topic wait there on purpose.
    f'dovecote_consumer_lag_seconds{{topic="orders.retry.1h", {CONSUMER}}}': steady(3000),
    f"dovecote_consumer_unmoved_seconds{{{PLACE}}}": steady(0),
    f"dovecote_consumer_beyond_inbox{{{CONSUMER}}}": steady(0),
    f"dovecote_consumer_holds_total{{{CONSUMER}}}": counting(0),
    f"dovecote_consumer_expired_total{{{PLACE}}}": counting(0),
    **outcomes(
        *("dovecote_consumer_records_total", "result", CONSUMER),
        handled=6000,
        skipped=60,
        retry=6,
        dead_letter=0,
    ),
    **outcomes("dovecote_consumer_rebalances_total", "kind", CONSUMER, revoked=0, lost=0),
    **outcomes(
        *("dovecote_push_attempts_total", "outcome", PUSH),
        delivered=600,
        retry=6,
        limited=60,
        dead=0,
        disabled=0,
    ),
    f"dovecote_push_circuit_open{{{PUSH}}}": steady(0),
    f"dovecote_push_lag_rows{{{PUSH}}}": steady(5),
    f"dovecote_push_stuck_partitions{{{PUSH}}}": steady(0),
    f"dovecote_push_held_back_partitions{{{PUSH}}}": steady(0),
    f"dovecote_push_expired_offsets{{{PUSH}}}": steady(0),
    f'dovecote_push_added_seconds_bucket{{le="1", {PUSH}}}': counting(600),
    f'dovecote_push_added_seconds_bucket{{le="60", {PUSH}}}': counting(600),
    f'dovecote_push_added_seconds_bucket{{le="+Inf", {PUSH}}}': counting(600),
    f"dovecote_spark_last_progress_timestamp_seconds{{{SPARK}}}": "0+60x120",
    f"dovecote_spark_lag_seconds{{{SPARK}}}": steady(2),
    f"dovecote_spark_lag_rows{{{READ}}}": steady(100),
    f"dovecote_spark_largest_bucket_bytes{{{SPARK}}}": steady(1_000_000),
    f"dovecote_spark_bucket_limit_bytes{{{SPARK}}}": steady(16_000_000),
    f"dovecote_spark_rows_total{{{SPARK}}}": counting(60_000),
    f"dovecote_spark_expired_total{{{SPARK}}}": counting(0),
    **outcomes("dovecote_spark_records_total", "result", SPARK, handled=60_000, dead_letter=0),
    **outcomes("dovecote_spark_records_skipped_total", "reason", SPARK, late=6, ahead=0),
}
"""A relay with a standby, consumers, push and a job that do their work, a sample a minute."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A thing that goes wrong, as series that are not those of a healthy system."""

    what: str
    series: Mapping[str, str]
    fires: frozenset[str] = field(default_factory=frozenset)
    """The alerts that fire once it has lasted, and no others; empty: none at any time."""


def _trouble(what: str, *fires: str, series: Mapping[str, str]) -> Trouble:
    return Trouble(what, series, frozenset(f"Dovecote{each}" for each in fires))


def _records(result: str, after: float, before: float = 0) -> dict[str, str]:
    name = f'dovecote_consumer_records_total{{result="{result}", {CONSUMER}}}'
    return {name: faster(before, after)}


def _attempts(outcome: str, before: float, after: float) -> dict[str, str]:
    return {
        f'dovecote_push_attempts_total{{outcome="{outcome}", {PUSH}}}': faster(before, after)
    }


_NOTHING_SENT = {
    **_attempts("delivered", 600, 0),
    **_attempts("retry", 6, 0),
    **_attempts("limited", 60, 0),
}
_NOTHING_HANDLED = {**_records("handled", 0, 6000), **_records("skipped", 0, 60)}
_ONLY_RELAY = {
    'up{job="dovecote-relay", instance="relay-1"}': then(1, 0),
    'up{job="dovecote-relay", instance="relay-2"}': then(1, 0),
}
_WITHOUT_RELAY = {name: gone() for name in HEALTHY if "relay-" in name and "token" not in name}
_WITHOUT_CONSUMER = {name: gone() for name in HEALTHY if "consumer-" in name}

TROUBLES = (
    _trouble(
        "all relays are down",
        *("PartDown", "RelayNotActive"),
        series={**_WITHOUT_RELAY, **_ONLY_RELAY},
    ),
    _trouble(
        "the pods of all relays are gone",
        *("PartDown", "RelayNotActive"),
        series=_WITHOUT_RELAY,
    ),
    _trouble(
        "one of two relays is down",
        "ProcessDown",
        series={
            **{name: gone() for name in HEALTHY if STANDBY in name},
            'up{job="dovecote-relay", instance="relay-2"}': then(1, 0),
        },
    ),
    _trouble(
        "relays run, and none is active",
        "RelayNotActive",
        series={f"dovecote_relay_active{{{RELAY}}}": then(1, 0)},
    ),
    _trouble(
        "Kafka does not answer the active relay",
        "RelayStalled",
        series={
            f"dovecote_relay_last_progress_timestamp_seconds{{{RELAY}}}": stopped_clock(),
            f"dovecote_relay_lag_seconds{{{RELAY}}}": f"0.1x{BEGINS - 1} 60+60x{LASTS}",
            f'dovecote_relay_failures_total{{kind="outage", {RELAY}}}': faster(0, 12),
        },
    ),
    _trouble(
        "more events come than the relay publishes",
        "RelayLagging",
        series={f"dovecote_relay_lag_seconds{{{RELAY}}}": f"0.1x{BEGINS - 1} 5+10x{LASTS}"},
    ),
    _trouble(
        "a topic is missing",
        "RelayParked",
        series={f"dovecote_relay_parked{{{RELAY}}}": then(0, 12)},
    ),
    _trouble(
        "a slot without a limit holds back the log",
        "RelaySlotGrows",
        series={f"dovecote_relay_slot_retained_bytes{{{RELAY}}}": "1000000+200000000x120"},
    ),
    _trouble(
        "a slot holds back most of what it may",
        "RelaySlotNearLimit",
        series={
            f"dovecote_relay_slot_retained_bytes{{{RELAY}}}": then(1e6, 9e9),
            f"dovecote_relay_slot_limit_bytes{{{RELAY}}}": steady(1e10),
        },
    ),
    _trouble(
        "an open transaction keeps published rows",
        "RelayRotationDelayed",
        series={
            f'dovecote_relay_rotation_delayed_seconds{{cause="locked", {RELAY}}}': (
                f"0x{BEGINS - 1} 60+60x{LASTS}"
            )
        },
    ),
    _trouble(
        "the active role changes hands every minute",
        "RelayUnsteady",
        series={f'dovecote_relay_failures_total{{kind="fenced", {RELAY}}}': faster(0, 1)},
    ),
    _trouble(
        "a group has no partition",
        "ConsumerNoPartitions",
        series={
            **{name: gone() for name in HEALTHY if PLACE in name and "expired" not in name},
            f"dovecote_consumer_partitions{{{CONSUMER}}}": then(4, 0),
            **_NOTHING_HANDLED,
        },
    ),
    _trouble(
        "all consumers are down",
        "PartDown",
        series={
            **_WITHOUT_CONSUMER,
            'up{job="dovecote-consumer", instance="consumer-1"}': then(1, 0),
            'up{job="dovecote-consumer", instance="consumer-2"}': then(1, 0),
        },
    ),
    _trouble(
        "more records come than handlers take",
        "ConsumerLagging",
        series={f"dovecote_consumer_lag_seconds{{{PLACE}}}": f"0.2x{BEGINS - 1} 20+20x{LASTS}"},
    ),
    _trouble(
        "a handler hangs",
        "ConsumerUnmoved",
        series={f"dovecote_consumer_unmoved_seconds{{{PLACE}}}": f"0x{BEGINS - 1} 60+60x{LASTS}"},
    ),
    _trouble(
        "a record cannot be read",
        "ConsumerStuck",
        series={
            f"dovecote_consumer_unmoved_seconds{{{PLACE}}}": f"0x{BEGINS - 1} 60+60x{LASTS}",
            f"dovecote_consumer_stuck{{{PLACE}}}": f"_x{BEGINS - 1} 1x{LASTS}",
        },
    ),
    _trouble(
        "a producer's transaction is open",
        *("ConsumerHeldBack", "PushHeldBack", "SparkHeldBack"),
        series={
            f"dovecote_consumer_unmoved_seconds{{{PLACE}}}": f"0x{BEGINS - 1} 60+60x{LASTS}",
            f"dovecote_consumer_held_back{{{PLACE}}}": f"_x{BEGINS - 1} 1x{LASTS}",
            f"dovecote_push_held_back_partitions{{{PUSH}}}": then(0, 1),
            f"dovecote_spark_held_back{{{READ}}}": f"_x{BEGINS - 1} 1x{LASTS}",
            **_NOTHING_SENT,
        },
    ),
    _trouble(
        "a consumer gives up records", "ConsumerDeadLetters", series=_records("dead_letter", 1)
    ),
    _trouble(
        "what a handler calls is away",
        "ConsumerRetryStorm",
        series={**_records("retry", 600), **_records("handled", 60, 6000)},
    ),
    _trouble(
        "every record of a consumer holds its key",
        "ConsumerRetryStorm",
        series={
            f"dovecote_consumer_holds_total{{{CONSUMER}}}": faster(0, 600),
            **_NOTHING_HANDLED,
        },
    ),
    _trouble(
        "records expire before a consumer reads them",
        "ConsumerExpired",
        series={f"dovecote_consumer_expired_total{{{PLACE}}}": faster(0, 100)},
    ),
    _trouble(
        "a consumer is further behind than its inbox remembers",
        *("ConsumerBeyondInbox", "ConsumerLagging"),
        series={
            f"dovecote_consumer_lag_seconds{{{PLACE}}}": then(0.2, 90_000),
            f"dovecote_consumer_beyond_inbox{{{CONSUMER}}}": then(0, 1),
        },
    ),
    _trouble(
        "a group throws out a member again and again",
        "ConsumerThrownOut",
        series={f'dovecote_consumer_rebalances_total{{kind="lost", {CONSUMER}}}': faster(0, 1)},
    ),
    _trouble(
        "all push processes are down",
        "PartDown",
        series={
            **{name: gone() for name in HEALTHY if PUSH in name},
            'up{job="dovecote-push", instance="push-1"}': then(1, 0),
            'up{job="dovecote-push", instance="push-2"}': then(1, 0),
        },
    ),
    _trouble(
        "an endpoint refuses most records",
        "PushFailing",
        series={**_attempts("retry", 6, 900), **_attempts("delivered", 600, 60)},
    ),
    _trouble(
        "an endpoint is away",
        "PushCircuitOpen",
        series={
            f"dovecote_push_circuit_open{{{PUSH}}}": then(0, 1),
            f"dovecote_push_lag_rows{{{PUSH}}}": f"5x{BEGINS - 1} 600+600x{LASTS}",
            **_attempts("retry", 6, 1),
            **_attempts("delivered", 600, 0),
            **_attempts("limited", 60, 0),
        },
    ),
    _trouble(
        "a subscription sends nothing",
        "PushStalled",
        series={
            f"dovecote_push_lag_rows{{{PUSH}}}": f"5x{BEGINS - 1} 600+600x{LASTS}",
            **_NOTHING_SENT,
        },
    ),
    _trouble(
        "more records come than an endpoint takes",
        "PushLate",
        series={
            f'dovecote_push_added_seconds_bucket{{le="1", {PUSH}}}': faster(600, 0),
            f'dovecote_push_added_seconds_bucket{{le="60", {PUSH}}}': faster(600, 0),
        },
    ),
    _trouble("push gives up records", "PushDeadLetters", series=_attempts("dead", 0, 1)),
    _trouble(
        "endpoints answer 410",
        "PushDisabled",
        series=_attempts("disabled", 0, 1),
    ),
    _trouble(
        "a record cannot be read by push",
        "PushStuck",
        series={f"dovecote_push_stuck_partitions{{{PUSH}}}": then(0, 1), **_NOTHING_SENT},
    ),
    _trouble(
        "records expire before push sends them",
        "PushExpired",
        series={f"dovecote_push_expired_offsets{{{PUSH}}}": then(0, 7)},
    ),
    _trouble(
        "a batch of a job hangs",
        "SparkStalled",
        series={
            f"dovecote_spark_last_progress_timestamp_seconds{{{SPARK}}}": stopped_clock(),
            f"dovecote_spark_lag_seconds{{{SPARK}}}": then(2, 90),
        },
    ),
    _trouble(
        "the process of a job has ended",
        "PartDown",
        series={
            **{name: gone() for name in HEALTHY if SPARK in name},
            'up{job="dovecote-spark", instance="spark-1"}': then(1, 0),
        },
    ),
    _trouble(
        "more records come than a job takes",
        "SparkBehind",
        series={f"dovecote_spark_lag_seconds{{{SPARK}}}": f"2x{BEGINS - 1} 10+10x{LASTS}"},
    ),
    _trouble(
        "a job gives up records",
        "SparkDeadLetters",
        series={
            f'dovecote_spark_records_total{{result="dead_letter", {SPARK}}}': faster(0, 1)
        },
    ),
    _trouble(
        "a producer's clock is wrong",
        "SparkWrongTimes",
        series={
            f'dovecote_spark_records_skipped_total{{reason="ahead", {SPARK}}}': faster(0, 3000)
        },
    ),
    _trouble(
        "the state of a job grows",
        "SparkStateNearLimit",
        series={f"dovecote_spark_largest_bucket_bytes{{{SPARK}}}": "1000000+140000x120"},
    ),
    _trouble(
        "records expire before a job reads them",
        "SparkExpired",
        series={f"dovecote_spark_expired_total{{{SPARK}}}": faster(0, 10)},
    ),
    _trouble(
        "a provider gives no token",
        "TokenExpiring",
        series={
            f"dovecote_kafka_token_expiry_seconds{{{TOKEN}}}": f"3600+60x{BEGINS - 1} 5400x90",
            f"dovecote_kafka_token_failures_total{{{TOKEN}}}": faster(0, 6),
        },
    ),
)
"""Troubles that last."""


def _up(part: str, number: int) -> str:
    return f'up{{job="dovecote-{part}", instance="{part}-{number}"}}'


_RESTARTED = {
    **{
        name: restarted(float(values.partition("+")[2].partition("x")[0]))
        for name, values in HEALTHY.items()
        if "_total{" in name or "_bucket{" in name
    },
    **{_up(part, 1): briefly(1, 0, minutes=1) for part in ("relay", "consumer", "push", "spark")},
    f"dovecote_relay_active{{{RELAY}}}": then(1, 0),
    f"dovecote_relay_active{{{STANDBY}}}": f"0x{BEGINS} 1x{LASTS}",
    f"dovecote_relay_last_progress_timestamp_seconds{{{RELAY}}}": (
        f"0+60x{BEGINS - 1} 0x{LASTS}"
    ),
    f"dovecote_relay_last_progress_timestamp_seconds{{{STANDBY}}}": (
        f"0x{BEGINS} {60 * (BEGINS + 1)}+60x{LASTS - 1}"
    ),
    f"dovecote_relay_lag_seconds{{{STANDBY}}}": briefly(0.1, 60, minutes=2),
    f"dovecote_consumer_partitions{{{CONSUMER}}}": briefly(4, 0, minutes=2),
    f"dovecote_consumer_lag_seconds{{{PLACE}}}": briefly(0.2, 90, minutes=3),
    f"dovecote_push_lag_rows{{{PUSH}}}": briefly(5, 2000, minutes=3),
    f"dovecote_spark_lag_seconds{{{SPARK}}}": briefly(2, 120, minutes=3),
}

BLIPS = (
    Trouble("nothing", {}),
    Trouble("every process is replaced, one after the other", _RESTARTED),
    Trouble(
        "Kafka is away for a minute",
        {
            f'dovecote_relay_failures_total{{kind="outage", {RELAY}}}': (
                f"0x{BEGINS - 1} 10x{LASTS}"
            ),
            f"dovecote_relay_last_progress_timestamp_seconds{{{RELAY}}}": (
                f"0+60x{BEGINS - 1} {60 * (BEGINS - 1)}x0 {60 * (BEGINS + 1)}+60x{LASTS - 1}"
            ),
            f"dovecote_relay_lag_seconds{{{RELAY}}}": briefly(0.1, 70, minutes=2),
            f"dovecote_consumer_partitions{{{CONSUMER}}}": briefly(4, 0, minutes=2),
            f"dovecote_consumer_unmoved_seconds{{{PLACE}}}": briefly(0, 60, minutes=2),
            f'dovecote_consumer_rebalances_total{{kind="lost", {CONSUMER}}}': (
                f"0x{BEGINS - 1} 1x{LASTS}"
            ),
            'up{job="dovecote-spark", instance="spark-1"}': briefly(1, 0, minutes=1),
        },
    ),
    Trouble(
        "Postgres fails over",
        {
            f'dovecote_relay_failures_total{{kind="lease_lost", {RELAY}}}': (
                f"0x{BEGINS - 1} 2x{LASTS}"
            ),
            f'dovecote_relay_failures_total{{kind="outage", {RELAY}}}': (
                f"0x{BEGINS - 1} 8x{LASTS}"
            ),
            f"dovecote_relay_active{{{RELAY}}}": briefly(1, 0, minutes=1),
        },
    ),
    Trouble(
        "an endpoint is restarted",
        {
            f"dovecote_push_circuit_open{{{PUSH}}}": briefly(0, 1, minutes=3),
            **_attempts("retry", 6, 6),
        },
    ),
    Trouble(
        "a record is tried again",
        {
            f'dovecote_consumer_records_total{{result="retry", {CONSUMER}}}': (
                f"0+6x{BEGINS - 1} {6 * BEGINS + 3}+6x{LASTS}"
            ),
            f"dovecote_consumer_holds_total{{{CONSUMER}}}": f"0x{BEGINS - 1} 3x{LASTS}",
        },
    ),
    Trouble("a scaler takes the last consumer away", _WITHOUT_CONSUMER),
    Trouble(
        "an attempt to get a token fails",
        {f"dovecote_kafka_token_failures_total{{{TOKEN}}}": f"0x{BEGINS - 1} 1x{LASTS}"},
    ),
)
"""Events that pass by themselves, or are meant: no alert fires, at any time."""
