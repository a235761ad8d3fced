"""Describe a healthy system, and one in trouble, as the series that Prometheus would have."""

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
CHILD = 'process="1", job="dovecote-consumer", instance="consumer-1"'
PLACE = f'topic="orders", partition="0", {CONSUMER}'
PUSH = 'subscription="billing", job="dovecote-push", instance="push-1"'
SPARK = 'query="days", job="dovecote-spark", instance="spark-1"'
READ = f'topic="orders", partition="0", {SPARK}'
AUDIT = 'job="dovecote-audit", instance="audit-1"'
TOKEN = 'provider="oidc", job="dovecote-relay", instance="relay-1"'  # noqa: S105  # labels


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


def ended(values: str) -> str:
    """Return a series that ends when the trouble begins, as `values` until then."""
    if values == UNKNOWN:
        before = " ".join(["NaN"] * BEGINS)
    else:
        before = values.removesuffix(f"x{BEGINS + LASTS}") + f"x{BEGINS - 1}"
    return f"{before} stale _x{LASTS - 1}"


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
        for part in ("relay", "consumer", "push", "spark", "audit")
        for number in (1, 2)
        if part not in {"spark", "audit"} or number == 1
    },
    f"dovecote_process_restarts_total{{{CHILD}}}": counting(0),
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
    **outcomes("dovecote_relay_failures_total", "kind", RELAY, outage=0, fenced=0, lease_lost=0),
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
    f"dovecote_spark_failed_runs{{{SPARK}}}": steady(0),
    f"dovecote_spark_lag_rows{{{READ}}}": steady(100),
    f"dovecote_spark_largest_bucket_bytes{{{SPARK}}}": steady(1_000_000),
    f"dovecote_spark_bucket_limit_bytes{{{SPARK}}}": steady(16_000_000),
    f"dovecote_spark_rows_total{{{SPARK}}}": counting(60_000),
    f"dovecote_spark_expired_total{{{SPARK}}}": counting(0),
    **outcomes("dovecote_spark_records_total", "result", SPARK, handled=60_000, dead_letter=0),
    **outcomes("dovecote_spark_records_skipped_total", "reason", SPARK, late=6, ahead=0),
    f'dovecote_audit_findings{{kind="lost", {AUDIT}}}': steady(0),
    f'dovecote_audit_findings{{kind="late", {AUDIT}}}': steady(0),
    f'dovecote_audit_state{{state="working", {AUDIT}}}': steady(1),
    f'dovecote_audit_state{{state="failing", {AUDIT}}}': steady(0),
    f'dovecote_audit_lag_seconds{{outbox="shop", {AUDIT}}}': steady(0.5),
    f'dovecote_audit_not_audited_seconds{{outbox="shop", {AUDIT}}}': steady(0),
}
"""A relay with a standby, consumers, push, a job and an auditor that work, a sample a minute."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A thing that goes wrong, as series that are not those of a healthy system."""

    what: str
    series: Mapping[str, str]
    fires: frozenset[str] = field(default_factory=frozenset)
    """The alerts that fire once it has lasted, and no others; empty: none at any time."""


def attempts(outcome: str, before: float, after: float) -> dict[str, str]:
    """Return push's counter of an outcome that counts at another rate from the trouble on."""
    return {f'dovecote_push_attempts_total{{outcome="{outcome}", {PUSH}}}': faster(before, after)}


def without(text: str) -> dict[str, str]:
    """Return the series that have a text in their names, ended."""
    return {name: ended(values) for name, values in HEALTHY.items() if text in name}
