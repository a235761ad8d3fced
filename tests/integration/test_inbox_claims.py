"""Nothing is committed under a claim that a newer one has followed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel, errors
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from dedup.inbox.claims import InboxClaims
from dedup.inbox.connections import AsyncConnections, Connections
from dedup.inbox.inbox import Inbox
from dedup.inbox.together import together
from dedup.rules.claim import Claim
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Done, Result, Skip, TakenOver, Unavailable
from dedup.rules.record import Record
from outbox.envelope import ID
from tests.support.waiting import patient, until

INBOX = Inbox("billing")
PLACE = [("orders", 0)]


@pytest.fixture
def claims(inbox: str) -> Iterator[InboxClaims]:
    claims = InboxClaims(inbox, "billing")
    yield claims
    claims.close()


@pytest.fixture
def connections(inbox: str) -> Iterator[Connections]:
    connections = Connections(inbox)
    yield connections
    connections.close()


def record(id_: str, claim: Claim | None, *, partition: int = 0) -> Record:
    found = Record("orders", partition, 0, 0, b"k", b"{}", ((ID, id_.encode()),))
    found.claim = claim
    return found


def effects(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM effects ORDER BY id").fetchall()]


def once(
    connections: Connections, then: Callable[[], object] = lambda: None
) -> Callable[[Record], Result]:
    """Return a handler of one effect, which does something else before it returns."""

    def handle(given: Record, tx: psycopg.Connection) -> None:
        tx.execute("INSERT INTO effects VALUES (%s)", [given.identity.id])
        then()

    return INBOX.once(
        handle,
        connections.begin,
        identity=lambda given: given.identity,
        claim=lambda given: given.claim,
    )


def test_the_newest_claim_takes_and_older_ones_do_not(
    inbox: str, claims: InboxClaims, connections: Connections
) -> None:
    old, new = Claim(*claims.claim(PLACE)), Claim(*claims.claim(PLACE))
    handler = once(connections)
    assert handler(record("e1", new)) == Done()
    with pytest.raises(TakenOver, match="another member"):
        handler(record("e2", old))
    assert (old.refused, new.refused) == (old.number, 0)
    assert handler(record("e1", new)) == Skip("duplicate of e1")
    assert effects(inbox) == ["e1"]


def test_partitions_and_consumers_claim_for_themselves(inbox: str, claims: InboxClaims) -> None:
    first, second = claims.claim([("orders", 0), ("orders", 1)])
    others = InboxClaims(inbox, "shipping")
    others.claim([*PLACE, ("other", 0)])
    claims.claim([("orders", 1)])
    others.close()
    with psycopg.connect(inbox) as tx:
        assert INBOX.take(tx, Identity("/s", "e1"), first) is None
    with psycopg.connect(inbox) as tx, pytest.raises(psycopg.Error, match="another member"):
        INBOX.take(tx, Identity("/s", "e2"), second)


def test_a_transaction_that_was_open_is_refused_when_it_commits_and_holds_nobody_up(
    inbox: str, claims: InboxClaims, connections: Connections
) -> None:
    old = Claim(*claims.claim(PLACE))
    newer: list[int] = []
    handler = once(connections, lambda: newer.extend(claims.claim(PLACE)))
    with pytest.raises(TakenOver, match="meanwhile"):
        handler(record("e1", old))
    assert effects(inbox) == []
    # The connection is good for the next event, and nobody has the event.
    assert once(connections)(record("e1", Claim(newer[0]))) == Done()
    assert effects(inbox) == ["e1"]


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_snapshot_that_is_older_than_the_claim_is_tried_again_and_refused(
    inbox: str, claims: InboxClaims, level: IsolationLevel
) -> None:
    (old,) = claims.claim(PLACE)
    with psycopg.connect(inbox) as conn:
        conn.isolation_level = level
        assert INBOX.take(conn, Identity("/s", "e1"), old) is None
        claims.claim(PLACE)
        with pytest.raises(errors.SerializationFailure):
            conn.commit()
        with pytest.raises(psycopg.Error, match="another member"):
            INBOX.take(conn, Identity("/s", "e1"), old)
        conn.rollback()
        assert INBOX.take(conn, Identity("/s", "e1"), *claims.claim(PLACE)) is None
        conn.commit()


def test_a_claim_waits_for_who_is_committing_and_that_counts_as_before(
    inbox: str, claims: InboxClaims
) -> None:
    (old,) = claims.claim(PLACE)
    with psycopg.connect(inbox) as conn, ThreadPoolExecutor(1) as pool:
        INBOX.take(conn, Identity("/s", "e1"), old)
        conn.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as if it committed, for a long time
        claiming = pool.submit(claims.claim, PLACE)
        until(lambda: waiting(inbox), within=10, what="who claims to wait")
        conn.commit()
        (new,) = claiming.result(patient(10))
    assert new > old


def waiting(dsn: str) -> int:
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with psycopg.connect(dsn) as conn:
        row = conn.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def test_of_a_batch_nothing_is_committed_if_one_of_its_partitions_was_claimed(
    inbox: str, claims: InboxClaims, connections: Connections
) -> None:
    mine = [Claim(number) for number in claims.claim([("orders", 0), ("orders", 1)])]
    after: list[Callable[[], object]] = [lambda: claims.claim([("orders", 1)])]

    def handle(given: list[Record], tx: psycopg.Connection) -> None:
        for each in given:
            tx.execute("INSERT INTO effects VALUES (%s)", [each.identity.id])
        while after:
            after.pop()()

    handler = together(
        INBOX,
        handle,
        connections.begin,
        identity=lambda given: given.identity,
        claim=lambda given: given.claim,
    )
    batch = [record(f"e{n}", mine[n % 2], partition=n % 2) for n in range(4)]
    with pytest.raises(TakenOver):
        handler(batch)
    assert effects(inbox) == []
    assert handler(batch[::2]) == [Done(), Done()]
    assert effects(inbox) == ["e0", "e2"]


def test_what_is_rolled_back_to_a_savepoint_is_in_nobodys_name(
    inbox: str, claims: InboxClaims
) -> None:
    first, second = claims.claim([("orders", 0), ("orders", 1)])
    with psycopg.connect(inbox) as conn:
        with conn.transaction(force_rollback=True):
            assert INBOX.take(conn, Identity("/s", "e1"), first) is None
        claims.claim(PLACE)
        assert INBOX.take(conn, Identity("/s", "e2"), second) is None
    with psycopg.connect(inbox) as conn:
        assert INBOX.take(conn, Identity("/s", "e2")) == Skip("duplicate of e2")
        assert INBOX.take(conn, Identity("/s", "e1")) is None


def test_who_resets_the_settings_of_the_transaction_commits_nothing(
    inbox: str, claims: InboxClaims
) -> None:
    (mine,) = claims.claim(PLACE)
    with psycopg.connect(inbox) as conn:
        INBOX.take(conn, Identity("/s", "e1"), mine)
        conn.execute("RESET ALL")
        with pytest.raises(psycopg.Error, match="settings were reset"):
            conn.commit()


def test_it_holds_for_sqlalchemy_too(inbox: str, claims: InboxClaims) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(inbox))
    mine = Claim(*claims.claim(PLACE))
    then: list[Callable[[], object]] = []

    def handle(given: Record, tx: Session) -> None:
        tx.execute(text("INSERT INTO effects VALUES (:id)"), {"id": given.identity.id})
        while then:
            then.pop()()

    handler = INBOX.once(
        handle,
        sessionmaker(engine).begin,
        identity=lambda given: given.identity,
        claim=lambda given: given.claim,
    )
    try:
        assert handler(record("e1", mine)) == Done()
        then.append(lambda: claims.claim(PLACE))
        with pytest.raises(TakenOver):
            handler(record("e2", mine))
    finally:
        engine.dispose()
    assert mine.refused == mine.number
    assert effects(inbox) == ["e1"]


def test_it_holds_where_it_is_awaited_too(inbox: str, claims: InboxClaims) -> None:
    connections = AsyncConnections(inbox)
    mine = Claim(*claims.claim(PLACE))

    async def handle(given: Record, tx: psycopg.AsyncConnection) -> None:
        await tx.execute("INSERT INTO effects VALUES (%s)", [given.identity.id])
        claims.claim(PLACE)

    handler = INBOX.once_async(
        handle,
        connections.begin,
        identity=lambda given: given.identity,
        claim=lambda given: given.claim,
    )

    async def run() -> None:
        with pytest.raises(TakenOver):
            await handler(record("e1", mine))
        connections.close()

    asyncio.run(run())
    assert effects(inbox) == []


def test_races_of_claims_and_commits_leave_each_effect_before_the_next_claim(
    inbox: str, claims: InboxClaims
) -> None:
    with psycopg.connect(inbox) as conn:
        conn.execute("CREATE TABLE done (nr bigserial, claim bigint NOT NULL)")
    enough = threading.Event()

    def work() -> int:
        taken, connections = 0, Connections(inbox)
        number, mine = 0, Claim(*claims.claim(PLACE))

        def effect(_: Record, tx: psycopg.Connection) -> None:
            # After the others' work: what is committed in its place is in order.
            tx.execute("LOCK TABLE done IN SHARE ROW EXCLUSIVE MODE")
            tx.execute("INSERT INTO done (claim) VALUES (%s)", [mine.number])

        handler: Any = INBOX.once(
            effect,
            connections.begin,
            identity=lambda given: given.identity,
            claim=lambda given: given.claim,
        )
        while not enough.is_set():
            number += 1
            try:
                handler(record(f"{threading.get_ident()}-{number}", mine))
                taken += 1
            except TakenOver:
                mine.number = claims.claim(PLACE)[0]
            except Unavailable:
                continue
        connections.close()
        return taken

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work) for _ in range(4)]
        until(lambda: done(inbox)[1] >= 40, within=40, what="40 claims with an effect each")
        enough.set()
        assert sum(each.result(patient(20)) for each in working) == done(inbox)[0]
    with psycopg.connect(inbox) as conn:
        in_order = [row[0] for row in conn.execute("SELECT claim FROM done ORDER BY nr")]
    assert in_order == sorted(in_order)


def done(dsn: str) -> tuple[int, int]:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*), count(DISTINCT claim) FROM done").fetchone()
        assert row is not None
        return int(row[0]), int(row[1])
