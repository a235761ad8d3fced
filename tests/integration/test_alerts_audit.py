"""A real Prometheus sees the alerts of real auditors fire, each in its trouble."""

import time
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from outbox import Event, schema
from tests.support.audited import Running, Shop
from tests.support.audited_log import drop_slot, relayed
from tests.support.fix_stack import MakeTopic, Servers, new_database
from tests.support.observing import all_fire, fired, observing
from tests.support.relaying import installed
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)


def port_of(auditor: Running) -> int:
    return int(auditor.url().rpartition(":")[2])


def test_alerts_of_the_auditor_fire_in_its_troubles(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    kafka = stack.kafka.bootstrap
    with ExitStack() as ends:

        def shop(name: str, bootstrap: str = kafka, capture: str | None = None) -> Shop:
            dsn = ends.enter_context(new_database(stack))
            if capture is None:
                with psycopg.connect(dsn) as conn:
                    schema.install(conn)
            else:
                installed(dsn, capture=capture)
            (tmp_path / name).mkdir()
            made = Shop(dsn, bootstrap, topic(3), tmp_path / name)
            state = str(tmp_path / name / "audit.sqlite3")
            made.extra.update({"state": state, "http.port": 0})
            return made

        found, away, gap = shop("found"), shop("away", "127.0.0.1:9"), shop("gap", capture="wal")
        found.extra["late"] = "1ms"
        ends.callback(drop_slot, gap.dsn)
        once = gap.settings("once.toml")
        gap.audit(once, status=3)  # its slot begins
        gap.publish(gap.write(3))
        relayed(gap.dsn)
        drop_slot(gap.dsn)

        (tmp_path / "prometheus").mkdir()
        prometheus = ends.enter_context(observing(tmp_path / "prometheus"))
        for name, each in (("found", found), ("away", away), ("gap", gap)):
            auditor = ends.enter_context(each.auditing(each.settings()))
            prometheus.watch({f"dovecote-audit-{name}": [port_of(auditor)]})
        events, written = found.write(3), time.time()
        until(lambda: time.time() > written + 0.05, within=5, what="records that come late")
        found.publish(events)
        found.publish([Event(topic=found.topic, type="Audited", source="/shop", key="k", value=1)])
        all_fire(
            prometheus,
            {
                ("AuditFindings", "dovecote-audit-found"),
                ("AuditLate", "dovecote-audit-found"),
                ("AuditFailing", "dovecote-audit-away"),
                ("AuditGap", "shop"),
            },
        )
        assert "PartDown" not in {alert for alert, _ in fired(prometheus)}
