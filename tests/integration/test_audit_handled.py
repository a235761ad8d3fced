"""`dovecote audit` compares what a real consumer has passed with its inbox and dead letters."""

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from dedup.inbox import schema as inbox_schema
from dedup.rules.policies.results import Again, Result, Skip
from outbox import Event, write
from tests.support.audited import Followed, Running, kinds
from tests.support.consuming import consuming
from tests.support.finding import without_password
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.observing import observing, of_parts, require_data
from tests.support.relaying import Relays, published
from tests.support.waiting import until


@pytest.fixture
def shop(
    stack: Servers,
    fleet: Relays,
    topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Followed:
    password = psycopg.conninfo.conninfo_to_dict(stack.postgres.dsn).get("password", "")
    monkeypatch.setenv("PGPASSWORD", str(password))
    with psycopg.connect(fleet.dsn) as conn:
        inbox_schema.install(conn)
    made = Followed(
        fleet.dsn,
        fleet.bootstrap,
        topic(2),
        tmp_path,
        relay=fleet.name,
        retry=topic(),
        dead=topic(),
    )
    fleet.active(retention="1h")
    return made


def commit(shop: Followed, fleet: Relays, *names: str) -> dict[str, Event]:
    """Commit an event of each name, and wait until the relay has published them."""
    events = {
        name: Event(topic=shop.topic, type="T", source="/shop", key=name, value={"is": name})
        for name in names
    }
    with psycopg.connect(shop.dsn) as conn:
        write(conn, *events.values())
    shop.written += len(events)
    published(fleet, shop.topic, shop.written)
    return events


def handle(event: Event) -> Result | None:
    match cast(dict[str, str], event.value)["is"]:
        case "dead":
            msg = "no such address"
            raise LookupError(msg)
        case "waits":
            msg = "the printer is on fire"
            raise RuntimeError(msg)
        case "skip":
            return Skip("not ours")
        case "again":
            return Again(timedelta(minutes=10))
        case _:
            return None


def consume(shop: Followed, *, records: int, **given: Any) -> None:
    """Run a consumer until it is done with so many records, and end it."""
    retries = {
        "base": "10m",
        "ceiling": "1h",
        "max_attempts": 3,
        "dead_letter_topic": shop.dead,
        "dead_on": ["builtins:LookupError"],
        "tiers": [{"topic": shop.retry}],
    }
    inbox = {"dsn": without_password(shop.dsn)}
    given = {"retries": retries, "inbox": inbox, **given}
    with consuming(shop.bootstrap, shop.topic, handle, **given) as running:
        until(
            lambda: running.count("records_total") >= records,
            within=40,
            what=f"{records} records done",
        )


def begun(auditor: Running, times: int) -> None:
    until(lambda: auditor.log.count("auditing") == times, within=30, what="it audits")


def forget(shop: Followed, event: Event) -> None:
    """Take the row of an event out of the inbox."""
    with psycopg.connect(shop.dsn) as conn:
        done = conn.execute("DELETE FROM inbox.handled WHERE id = %s", [f"{event.id}@/shop"])
        assert done.rowcount == 1


def test_a_row_taken_out_of_the_inbox_is_found_and_nothing_else(
    shop: Followed, fleet: Relays
) -> None:
    told = shop.audit(status=0)
    assert told["consumers"]["consumer/shipping"]["passed"] == 0
    some = commit(shop, fleet, *(f"n{n}" for n in range(30)))
    odd = commit(shop, fleet, "dead", "waits", "skip", "again")
    rest = commit(shop, fleet, *(f"m{n}" for n in range(10)))
    # The consumer has not begun: it is behind, and nothing is lost.
    assert shop.audit(status=0)["consumers"]["consumer/shipping"]["passed"] == 0
    consume(shop, records=44)
    ahead = commit(shop, fleet, *(f"a{n}" for n in range(5)))
    counts = shop.audit(status=0)["consumers"]["consumer/shipping"]
    assert counts["passed"] == counts["handled"] >= 44, counts
    assert counts["unjudged"] == counts["unhandled"] == 0
    lost = [some["n20"], rest["m5"], odd["skip"]]
    for each in lost:
        forget(shop, each)
    told = shop.audit(status=1)
    assert kinds(told) == sorted(("unhandled", each.id) for each in lost)
    by_id = {each["id"]: each for each in told["findings"]}
    assert by_id[lost[0].id]["part"] == "consumer/shipping"
    assert by_id[lost[0].id]["key"] == "n20"
    assert all(each["places"][0].startswith(f"{shop.topic}/") for each in told["findings"])
    assert not {each.id for each in ahead.values()} & by_id.keys()


def test_records_that_a_filter_skips_are_not_found(shop: Followed, fleet: Relays) -> None:
    commit(shop, fleet, *(f"n{n}" for n in range(10)), "other1", "other2")
    consume(shop, records=12, filter="key.startswith('n')")
    counts = shop.audit(shop.settings(filter="key.startswith('n')"), status=0)["consumers"]
    assert counts["consumer/shipping"]["unjudged"] == 2, counts


def test_an_auditor_that_goes_on_finds_it_once_and_waits_for_a_consumer_that_is_behind(
    shop: Followed, fleet: Relays
) -> None:
    commit(shop, fleet, *(f"n{n}" for n in range(20)))
    file = shop.settings(state=str(shop.folder / "audit.sqlite3"))
    with shop.auditing(file) as auditor:
        consume(shop, records=20)
        begun(auditor, 1)
        second = commit(shop, fleet, "dead", *(f"m{n}" for n in range(20)))
        auditor.kill()
        consume(shop, records=21)
        # The state may have the first ones already; what is gone later is not looked at again.
        forget(shop, second["m7"])
        auditor.start()
        until(lambda: [each for each in auditor.told() if "kind" in each], within=60, what="found")
        commit(shop, fleet, *(f"late{n}" for n in range(5)))
        auditor.kill()
        auditor.start()
        consume(shop, records=5)
        begun(auditor, 3)
        assert auditor.stop() == 0
        found = [(each["kind"], each["id"]) for each in auditor.told() if "kind" in each]
    assert {*found} == {("unhandled", second["m7"].id)}


def test_every_panel_of_the_auditor_has_data(shop: Followed, fleet: Relays) -> None:
    commit(shop, fleet, "one", "two")
    consume(shop, records=2)
    shop.extra["http.port"] = 0
    file = shop.settings(state=str(shop.folder / "audit.sqlite3"))
    (shop.folder / "prometheus").mkdir()
    with observing(shop.folder / "prometheus") as prometheus, shop.auditing(file) as auditor:
        port = int(auditor.url().rpartition(":")[2])
        prometheus.watch({"dovecote-audit": [port]})
        require_data(prometheus, of_parts("audit"))
