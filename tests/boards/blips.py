"""Say what passes by itself, or is meant: no alert fires at any minute of it."""

from tests.boards.series import (
    AUDIT,
    BEGINS,
    CONSUMER,
    HEALTHY,
    LASTS,
    PLACE,
    PUSH,
    RELAY,
    SPARK,
    STANDBY,
    TOKEN,
    Trouble,
    attempts,
    briefly,
    restarted,
    then,
    without,
)


def _up(part: str, number: int) -> str:
    return f'up{{job="dovecote-{part}", instance="{part}-{number}"}}'


_RESTARTED = {
    **{
        name: restarted(float(values.partition("+")[2].partition("x")[0]))
        for name, values in HEALTHY.items()
        if "_total{" in name or "_bucket{" in name
    },
    **{
        _up(part, 1): briefly(1, 0, minutes=1)
        for part in ("relay", "consumer", "push", "spark", "audit")
    },
    f"dovecote_relay_active{{{RELAY}}}": then(1, 0),
    f"dovecote_relay_active{{{STANDBY}}}": f"0x{BEGINS} 1x{LASTS}",
    f"dovecote_relay_last_progress_timestamp_seconds{{{RELAY}}}": (f"0+60x{BEGINS - 1} 0x{LASTS}"),
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
            **attempts("retry", 6, 6),
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
    Trouble(
        "the auditor reads what came while it was away for five minutes",
        {
            'up{job="dovecote-audit", instance="audit-1"}': briefly(1, 0, minutes=1),
            f'dovecote_audit_state{{state="failing", {AUDIT}}}': briefly(0, 1, minutes=2),
            f'dovecote_audit_lag_seconds{{outbox="shop", {AUDIT}}}': briefly(0.5, 300, minutes=4),
        },
    ),
    Trouble("a scaler takes the last consumer away", without("consumer-")),
    Trouble(
        "an attempt to get a token fails",
        {f"dovecote_kafka_token_failures_total{{{TOKEN}}}": f"0x{BEGINS - 1} 1x{LASTS}"},
    ),
)
"""Events that pass by themselves, or are meant: no alert fires, at any time."""
