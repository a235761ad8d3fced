"""The relay over TLS, under users with only the rights that docs/security.md lists."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from psycopg.conninfo import make_conninfo

from dovecote.devstack import Stack
from dovecote.devstack.places import LOOPBACK, free_port, temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from tests.support.certificates import Certificates, certificates
from tests.support.commands import relay_command, status
from tests.support.fix_stack import MakeTopic, new_database, new_topics
from tests.support.guarded import Right, listed
from tests.support.relaying import (
    RelayProcess,
    Relays,
    commit,
    event,
    installed,
    published,
    relays,
)
from tests.support.tls_proxy import tls_in_front
from tests.support.waiting import patient

PASSWORD = "sasl-tops3cret"  # noqa: S105  # of this test's broker
LOGIN = "org.apache.kafka.common.security"
SASL = {
    "PLAIN": f'{LOGIN}.plain.PlainLoginModule required user_relay="{PASSWORD}";',
    "SCRAM-SHA-512": f"{LOGIN}.scram.ScramLoginModule required;",
}


class Secured(NamedTuple):
    """Servers that ask for TLS and passwords, and the credentials of a client."""

    stack: Stack
    postgres_port: int
    bootstrap: str
    trusted: Certificates
    stranger: Certificates


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    folder = temporary_directory(server_user())
    others = folder / "others"
    others.mkdir()
    own, port = certificates(folder), free_port()
    listener = f"SECURED://{LOOPBACK}:{port}"
    sasl = {
        f"listener.name.secured.{mechanism.lower()}.sasl.jaas.config": login
        for mechanism, login in SASL.items()
    }
    kafka = {
        "listeners": listener,
        "advertised.listeners": listener,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL"
        ),
        "listener.name.secured.ssl.keystore.type": "PEM",
        "listener.name.secured.ssl.keystore.location": str(own.both),
        "listener.name.secured.sasl.enabled.mechanisms": ",".join(SASL),
        **sasl,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    try:
        with (
            Stack(fsync=False, kafka=kafka) as stack,
            tls_in_front(stack.postgres.port, own.certificate, own.key) as postgres_port,
        ):
            admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
            scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            wanted = UserScramCredentialUpsertion("relay", scram, PASSWORD.encode())
            for made in admin.alter_user_scram_credentials([wanted]).values():
                made.result(patient(30))
            yield Secured(stack, postgres_port, f"{LOOPBACK}:{port}", own, certificates(others))
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def fleet(secured: Secured, tmp_path: Path) -> Iterator[Relays]:
    with (
        new_database(secured.stack) as dsn,
        relays(tmp_path, installed(verified(dsn, secured)), secured.stack.kafka.bootstrap) as made,
    ):
        yield made


@pytest.fixture
def topic(secured: Secured) -> Iterator[MakeTopic]:
    with new_topics(secured.stack) as make:
        yield make


def verified(dsn: str, secured: Secured, **changed: str) -> str:
    return make_conninfo(
        dsn,
        **{
            "port": str(secured.postgres_port),
            "sslmode": "verify-full",
            "sslrootcert": str(secured.trusted.authority),
            **changed,
        },
    )


def client(secured: Secured, mechanism: str = "PLAIN", **changed: str) -> dict[str, str]:
    """Return the document's `[kafka]` table, for this broker."""
    return {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "relay",
        "ssl.ca.location": str(secured.trusted.authority),
        **{name.replace("_", "."): value for name, value in changed.items()},
    }


def secret(password: str = PASSWORD) -> dict[str, str]:
    return {"DOVECOTE_RELAY_KAFKA__SASL_PASSWORD": password}


def rights(name: str, *topics: str) -> list[Right]:
    """Return the rights of a relay that docs/security.md lists."""
    every = dict.fromkeys(
        right for topic in topics or [""] for right in listed("relay", name=name, topic=topic)
    )
    return [right for right in every if right.name]


def grant(secured: Secured, wanted: Iterable[Right]) -> None:
    admin = AdminClient({"bootstrap.servers": secured.stack.kafka.bootstrap})
    for granted in admin.create_acls([each.binding("relay") for each in wanted]).values():
        granted.result(patient(30))


def test_it_relays_over_verified_connections_with_the_rights_of_the_document(
    secured: Secured, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    grant(secured, rights(fleet.name, name))
    relay = fleet.active(kafka=client(secured), environ=secret())
    commit(fleet.dsn, event(name, 1))
    assert len(published(fleet, name, 1)) == 1
    said = status(fleet, bootstrap=secured.bootstrap, kafka=client(secured), environ=secret())
    assert (said.returncode, said.stderr) == (0, "")
    assert relay.terminate() == 0
    assert PASSWORD not in relay.log + said.stdout


WRONG = "wrong-tops3cret"


def ends(relay: RelayProcess, *says: str) -> None:
    """Wait for a relay's end, and check that it says why in one line, without a secret."""
    assert relay.wait(within=30) == 1
    (said,) = [line for line in relay.log.splitlines() if line.startswith("dovecote: ")]
    assert all(each in said for each in says), said
    assert WRONG not in relay.log
    assert PASSWORD not in relay.log
    assert "Traceback" not in relay.log


def test_a_broker_that_lets_it_in_on_no_account_ends_it_and_keeps_the_secret(
    secured: Secured, fleet: Relays
) -> None:
    cases = [
        (client(secured), WRONG, "Authentication failed"),
        (client(secured, "SCRAM-SHA-512"), WRONG, "Authentication failed"),
        (
            client(secured, ssl_ca_location=str(secured.stranger.authority)),
            PASSWORD,
            "certificate",
        ),
    ]
    # All at once, because librdkafka tries until the end.
    started = [
        fleet.start(
            kafka=kafka,
            environ=secret(password),
            name=f"{fleet.name}-{n}",
            transaction_timeout="3s",
        )
        for n, (kafka, password, _) in enumerate(cases)
    ]
    for relay, (_, _, says) in zip(started, cases, strict=True):
        ends(relay, "dovecote: Kafka: ", says, "correct `[kafka]`")


def test_a_postgres_that_lets_it_in_on_no_account_ends_it_and_keeps_the_secret(
    secured: Secured, fleet: Relays
) -> None:
    cases = {
        "password authentication failed": {"password": WRONG},
        'database "nowhere" does not exist': {"dbname": "nowhere"},
        "certificate verify failed": {"sslrootcert": str(secured.stranger.authority)},
        "does not match host name": {"host": "localhost"},
        "root certificate file": {"sslrootcert": "/nowhere.pem"},
    }
    started = {
        says: fleet.start(dsn=verified(fleet.dsn, secured, **changed))
        for says, changed in cases.items()
    }
    for says, relay in started.items():
        ends(relay, "dovecote: Postgres: ", says, "correct `dsn`")


def test_a_right_that_is_missing_in_kafka_is_named(secured: Secured, fleet: Relays) -> None:
    """All of them but two: the topics of events are below, and one is for a look at a setting."""
    started: list[tuple[Right, RelayProcess]] = []
    for number, needed in enumerate(listed("relay", name="", topic="").values()):
        name = f"{fleet.name}-{number}"
        wanted = rights(name)
        if not needed or number == 0:
            continue
        missing = wanted.pop(number - 1)
        grant(secured, wanted)
        relay = fleet.start(kafka=client(secured), environ=secret(), name=name)
        started.append((missing, relay))
    for missing, relay in started:
        ends(relay, f"grant this user {missing.said}")


def test_reconcile_needs_to_read_the_topics_of_events_and_says_so(
    secured: Secured, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    grant(secured, rights(fleet.name, name))
    relay = fleet.active(kafka=client(secured), environ=secret())
    commit(fleet.dsn, event(name, 1))
    published(fleet, name, 1)
    assert relay.terminate() == 0
    (read,) = listed("dovecote relay reconcile", topic=name)
    given: dict[str, Any] = {
        "kafka": client(secured),
        "environ": secret(),
        "bootstrap": secured.bootstrap,
    }
    refused = relay_command("reconcile", fleet, **given)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"grant this user {read.said}, see docs/security.md" in refused.stderr
    grant(secured, [read])
    done = relay_command("reconcile", fleet, **given)
    assert done.returncode == 0, done.stderr


def test_a_topic_that_may_not_be_written_to_holds_up_nobody(
    secured: Secured, fleet: Relays, topic: MakeTopic
) -> None:
    name, other, shown = topic(1), topic(1), topic(1)
    # For a topic that may be described, only its rights show that.
    grant(secured, [*rights(fleet.name, other), Right("Describe", "topic", shown)])
    relay = fleet.active(kafka=client(secured, "SCRAM-SHA-512"), environ=secret(), park_after="1h")
    commit(fleet.dsn, event(name, 1), event(shown, 1), event(other, 1))
    published(fleet, other, 1)
    for each in (name, shown):
        relay.until_logged(f"for topic '{each}'")
    assert "unpublishable" not in relay.log
    grant(secured, rights(fleet.name, name, shown))
    for each in (name, shown):
        assert len(published(fleet, each, 1)) == 1
