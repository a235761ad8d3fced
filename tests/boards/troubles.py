"""Say which alerts fire in which trouble, and in no other."""

from collections.abc import Mapping

from tests.boards.series import (
    AUDIT,
    BEGINS,
    CHILD,
    CONSUMER,
    LASTS,
    PLACE,
    PUSH,
    READ,
    RELAY,
    SPARK,
    STANDBY,
    TOKEN,
    Trouble,
    attempts,
    faster,
    steady,
    stopped_clock,
    then,
    without,
)


def _trouble(what: str, *fires: str, series: Mapping[str, str]) -> Trouble:
    return Trouble(what, series, frozenset(f"Dovecote{each}" for each in fires))


def _records(result: str, after: float, before: float = 0) -> dict[str, str]:
    name = f'dovecote_consumer_records_total{{result="{result}", {CONSUMER}}}'
    return {name: faster(before, after)}


_NOTHING_SENT = {
    **attempts("delivered", 600, 0),
    **attempts("retry", 6, 0),
    **attempts("limited", 60, 0),
}
_NOTHING_HANDLED = {**_records("handled", 0, 6000), **_records("skipped", 0, 60)}
_ONLY_RELAY = {
    'up{job="dovecote-relay", instance="relay-1"}': then(1, 0),
    'up{job="dovecote-relay", instance="relay-2"}': then(1, 0),
}
_WITHOUT_RELAY = {
    name: values for name, values in without("relay-").items() if "token" not in name
}
_WITHOUT_PARTITIONS = {
    name: values for name, values in without(PLACE).items() if "expired" not in name
}
_AUDIT_LAG = f'dovecote_audit_lag_seconds{{outbox="shop", {AUDIT}}}'

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
            **without(STANDBY),
            'up{job="dovecote-relay", instance="relay-2"}': then(1, 0),
        },
    ),
    _trouble(
        "a process under a parent ends again and again",
        "ProcessRestarting",
        series={f"dovecote_process_restarts_total{{{CHILD}}}": faster(0, 1)},
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
            **_WITHOUT_PARTITIONS,
            f"dovecote_consumer_partitions{{{CONSUMER}}}": then(4, 0),
            **_NOTHING_HANDLED,
        },
    ),
    _trouble(
        "all consumers are down",
        "PartDown",
        series={
            **without("consumer-"),
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
        *("ConsumerUnmoved", "ConsumerLagging"),
        series={
            f"dovecote_consumer_unmoved_seconds{{{PLACE}}}": f"0x{BEGINS - 1} 60+60x{LASTS}",
            f"dovecote_consumer_lag_seconds{{{PLACE}}}": f"0x{BEGINS - 1} 60+60x{LASTS}",
        },
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
            **without(PUSH),
            'up{job="dovecote-push", instance="push-1"}': then(1, 0),
            'up{job="dovecote-push", instance="push-2"}': then(1, 0),
        },
    ),
    _trouble(
        "an endpoint refuses most records",
        "PushFailing",
        series={**attempts("retry", 6, 900), **attempts("delivered", 600, 60)},
    ),
    _trouble(
        "an endpoint is away",
        "PushCircuitOpen",
        series={
            f"dovecote_push_circuit_open{{{PUSH}}}": then(0, 1),
            f"dovecote_push_lag_rows{{{PUSH}}}": f"5x{BEGINS - 1} 600+600x{LASTS}",
            **attempts("retry", 6, 1),
            **attempts("delivered", 600, 0),
            **attempts("limited", 60, 0),
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
    _trouble("push gives up records", "PushDeadLetters", series=attempts("dead", 0, 1)),
    _trouble(
        "endpoints answer 410",
        "PushDisabled",
        series=attempts("disabled", 0, 1),
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
            **without(SPARK),
            'up{job="dovecote-spark", instance="spark-1"}': then(1, 0),
        },
    ),
    _trouble(
        "a job fails again and again",
        "SparkRestarting",
        series={f"dovecote_spark_failed_runs{{{SPARK}}}": then(0, 3)},
    ),
    _trouble(
        "more records come than a job takes",
        "SparkBehind",
        series={f"dovecote_spark_lag_seconds{{{SPARK}}}": f"2x{BEGINS - 1} 10+10x{LASTS}"},
    ),
    _trouble(
        "a job gives up records",
        "SparkDeadLetters",
        series={f'dovecote_spark_records_total{{result="dead_letter", {SPARK}}}': faster(0, 1)},
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
        "the auditor has ended",
        "PartDown",
        series={
            **without(AUDIT),
            'up{job="dovecote-audit", instance="audit-1"}': then(1, 0),
        },
    ),
    _trouble(
        "the auditor finds lost events",
        "AuditFindings",
        series={f'dovecote_audit_findings{{kind="lost", {AUDIT}}}': then(0, 2)},
    ),
    _trouble(
        "the auditor sees late records",
        "AuditLate",
        series={f'dovecote_audit_findings{{kind="late", {AUDIT}}}': then(0, 1)},
    ),
    _trouble(
        "the auditor reaches no server",
        "AuditFailing",
        series={
            f'dovecote_audit_state{{state="working", {AUDIT}}}': then(1, 0),
            f'dovecote_audit_state{{state="failing", {AUDIT}}}': then(0, 1),
            _AUDIT_LAG: f"0.5x{BEGINS - 1} 60+60x{LASTS}",
        },
    ),
    _trouble(
        "more events come than the auditor reads",
        "AuditBehind",
        series={_AUDIT_LAG: f"0.5x{BEGINS - 1} 30+30x{LASTS}"},
    ),
    _trouble(
        "a server takes the auditor's slot away",
        "AuditGap",
        series={f'dovecote_audit_not_audited_seconds{{outbox="shop", {AUDIT}}}': then(0, 90)},
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
