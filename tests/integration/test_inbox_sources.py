"""An inbox that knew events by their id alone learns their sources, and forgets nothing."""

import random
from contextlib import closing
from datetime import timedelta
from operator import attrgetter

import psycopg
import pytest
from psycopg import errors

import dedup.inbox.inbox
from dedup.inbox import schema
from dedup.inbox.connections import Connections
from dedup.inbox.held import PostgresStates
from dedup.inbox.inbox import Inbox
from dedup.retries.held_states import is_of
from dedup.rules.identity import Identity, identity, of_topic
from dedup.rules.policies.results import Again, Done, Result, Skip, Unavailable
from dedup.rules.record import Record
from outbox import Event, envelope
from tests import old_schemas
from tests.support.inboxes import Ring

INBOX = Inbox("billing")
TOPIC_ID = "PolNg21HQi6d_zBlsLuZrA"
PLACE = identity(of_topic(Record, TOPIC_ID)("orders", 3, 17, 0, None, None))
LONG = "x" * 501
OLD = ["7", "a@b.example", "7@/lms", "orders/3/17", "", "line\nend"]


@pytest.fixture
def old(database: str) -> str:
    """A database whose inbox was installed, and used, by the version before."""
    with psycopg.connect(database) as conn:
        conn.execute(old_schemas.script(4, "inbox", part="inbox").encode())
        # So that it is not of this installation's own transaction.
        conn.execute("UPDATE inbox.slots SET began = began - interval '1s' WHERE began NOTNULL")
        for id_ in OLD:
            conn.execute("SELECT inbox.take('billing', %s, 0)", [id_])
        conn.execute(
            "SELECT inbox.take('billing', 'sha256/' || encode(sha256(%s), 'hex'), 0)",
            [LONG.encode()],
        )
        conn.execute("SELECT inbox.take('billing', 'later', 1)")
        conn.execute("SELECT inbox.again('billing', 'later', 1, 5000)")
    return database


def upgrade(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        assert [step.version for step in schema.install(conn)] == [5, 6, 7, 8]


def taken(dsn: str, *known: Identity) -> list[Again | Skip | None]:
    """Return the answers, one by one and all together, which leave no trace."""
    with psycopg.connect(dsn) as tx:
        alone = [INBOX.take(tx, each) for each in known]
        tx.rollback()
        assert INBOX.take_many(tx, known) == alone
        tx.rollback()
    return alone


@pytest.mark.parametrize("turns", [0, 3])
def test_what_was_handled_before_is_known_whatever_its_source_and_all_else_is_new(
    old: str, turns: int
) -> None:
    ring = Ring(old)
    for _ in range(turns):
        ring.turn()
    upgrade(old)
    for source in ("/shop", "orders", "a@b%c"):
        handled = [Identity(source, each) for each in (*OLD, LONG)]
        assert taken(old, *handled) == [Skip(f"duplicate of {each.id}") for each in handled]
        assert taken(old, Identity(source, "later", 1)) == [Again(timedelta(seconds=5))]
        others = [Identity(source, "8"), Identity(source, "7", 1), Identity(source, "later")]
        assert taken(old, *others) == [None] * 3
    assert taken(old, PLACE) == [Skip(f"duplicate of {PLACE.id}")]
    assert taken(old, PLACE._replace(source="another")) == [None]
    with psycopg.connect(old) as tx:
        assert Inbox("shipping").take(tx, Identity("/shop", "7")) is None


def test_new_events_are_known_by_their_source_beside_old_ones(old: str) -> None:
    upgrade(old)
    with psycopg.connect(old) as tx:
        for source in ("/studio", "/lms"):
            assert INBOX.take(tx, Identity(source, "8")) is None
            assert INBOX.take(tx, Identity(source, "8")) == Skip("duplicate of 8")
        INBOX.again(tx, Identity("/lms", "8"), Again(timedelta(seconds=1)))
    found = taken(old, Identity("/studio", "8"), Identity("/lms", "8"))
    assert found == [Skip("duplicate of 8"), Again(timedelta(seconds=1))]


def test_old_events_are_forgotten_with_their_slots_and_then_nobody_looks_for_them(
    old: str,
) -> None:
    upgrade(old)
    ring = Ring(old)
    ring.turn()
    with psycopg.connect(old) as tx:
        INBOX.take(tx, Identity("/shop", "new"))
    assert taken(old, Identity("/shop", "7")) == [Skip("duplicate of 7")]
    ring.rotate("0s")
    assert taken(old, Identity("/shop", "7")) == [None]
    assert taken(old, Identity("/shop", "new")) == [Skip("duplicate of new")]
    with psycopg.connect(old) as conn:
        assert conn.execute("SELECT last_value FROM inbox.by_id").fetchone() == (0,)


def test_a_new_inbox_looks_for_no_old_events(inbox: str) -> None:
    with psycopg.connect(inbox) as conn:
        assert conn.execute("SELECT last_value FROM inbox.by_id").fetchone() == (0,)


def test_two_sources_with_equal_ids_each_have_their_effects(inbox: str) -> None:
    """The key is longer than an index takes, in both of its parts."""
    for id_ in ("7", "x" * 5_000, "\0"):
        known = [Identity(source, id_) for source in ("/a", "/b", "/" * 5_000, "\0", "")]
        assert taken(inbox, *known) == [None] * 5
        assert taken(inbox, *known, *known)[5:] == [Skip(f"duplicate of {id_}")] * 5


def test_a_consumer_of_the_version_before_waits_instead_of_handling_twice(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows `id` alone, and burns no attempt."""
    upgrade(old)
    monkeypatch.setattr(dedup.inbox.inbox, "stored", attrgetter("id"))

    def handle(event: object, tx: object) -> Result | None:  # noqa: ARG001  # as it is called
        pytest.fail("it was handled")

    with closing(Connections(old)) as pool:
        once = INBOX.once(handle, pool.begin, identity=lambda _: Identity("", "8"))
        with pytest.raises(Unavailable, match="start the version of Dovecote that has upgraded"):
            once(None)


def test_the_history_of_a_held_record_is_known_after_the_upgrade(old: str) -> None:
    with psycopg.connect(old) as conn:
        conn.execute(
            'INSERT INTO inbox.held (consumer, topic, partition, "offset", id, attempt, round,'
            " first_seen, due) VALUES ('billing', 'orders', 3, 17, 'orders/3/17', 4, 0, 1, 2)"
        )
    upgrade(old)
    with closing(PostgresStates(old, "billing")) as states:
        ((place, state),) = states.load([("orders", 3)]).items()
        record = of_topic(Record, TOPIC_ID)(*place, 0, None, None)
        assert is_of(state, record)
        assert not is_of(state, record._replace(headers=[(envelope.ID, b"other")]))
        states.keep(record, state.delivery)
        kept = states.load([("orders", 3)])[place]
        assert is_of(kept, record)
        anew = of_topic(Record, "b" * 22)(*record)
        assert not is_of(kept, anew)


def test_an_event_that_no_index_holds_fails_and_is_not_waited_for(inbox: str) -> None:
    # An id and a group of many characters that cannot be compressed exceed an entry of the index.
    signs = random.Random(1)
    id_ = "".join(chr(signs.randrange(0x10000, 0x10FFFF)) for _ in range(500))
    group = "".join(chr(signs.randrange(0x10000, 0x10FFFF)) for _ in range(240))
    handler = Inbox(group).once(lambda _, __: Done(), lambda: psycopg.connect(inbox))
    with pytest.raises(errors.ProgramLimitExceeded):
        handler(Event(topic="orders", type="Placed", id=id_))
