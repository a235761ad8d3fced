"""Several outboxes in one database: each with its own tables, slot, names and relays."""

import psycopg

from dovecote.devstack import Stack
from outbox import schema, write
from outbox.schema.capture import use_wal
from relay.kafka.progress_topic import ProgressTopic
from relay.settings import RelaySettings
from tests.support.fix_stack import MakeTopic
from tests.support.relayed import running
from tests.support.relaying import event, ids
from tests.support.waiting import consume, patient, until

CAPTURES = {"orders": "table", "billing": "table", "stock": "wal", "mail": "wal"}


def test_outboxes_of_one_database_are_published_side_by_side(
    stack: Stack, database: str, topic: MakeTopic
) -> None:
    topics = {name: topic(2) for name in CAPTURES}
    with psycopg.connect(database) as conn:
        for name in CAPTURES:
            schema.install(conn, name)
    for name, capture in CAPTURES.items():
        if capture == "wal":
            use_wal(database, name)
    every = {
        name: RelaySettings.model_validate(
            {
                "dsn": {"env": "DSN"},
                "schema": name,
                "name": f"{topics[name]}-{name}",
                "capture": capture,
                "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
            },
            context={"environ": {"DSN": database}},
        )
        for name, capture in CAPTURES.items()
    }
    written: dict[str, list[str]] = {name: [] for name in CAPTURES}
    with running(every.values()), psycopg.connect(database) as conn:
        for number in range(30):
            # One transaction may write to all of them.
            for name in CAPTURES:
                event_ = event(topics[name], number)
                write(conn, event_, schema=name)
                written[name].append(event_.id)
            conn.commit()
        for name, wanted in written.items():
            until(
                lambda wanted=wanted, name=name: (  # type: ignore[misc]  # bound early
                    ids(consume(stack.kafka.bootstrap, topics[name])) == wanted
                ),
                within=30,
                what=f"the events of {name}, all and in order",
            )
    for name, settings in every.items():
        found = ProgressTopic(settings.progress_topic, settings.kafka, timeout=patient(10)).peek(
            settings.name
        )
        assert found is not None
        assert found.capture == CAPTURES[name]
