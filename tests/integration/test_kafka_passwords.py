"""A password of Kafka that changes is used without a restart, while the client lives on."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from dovecote.devstack import Stack
from dovecote.devstack.places import LOOPBACK, free_port
from outbox import schema
from outbox.producer.producer import Producer
from tests.support.consuming import consuming
from tests.support.fix_stack import new_database, new_topics
from tests.support.relaying import RelayProcess, commit, event, installed, settings
from tests.support.waiting import patient, until

_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
# After this time the broker asks a connection for its password again.
_AGAIN_MS = 1_500
_REFUSED = "invalid credentials"


class Guarded(NamedTuple):
    """A broker that asks for passwords, and asks again."""

    stack: Stack
    bootstrap: str

    def set_password(self, file: Path, between: Callable[[], object] = lambda: None) -> None:
        """Change the password, do what comes `between`, and then change its file."""
        new = uuid4().hex
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion("app", scram, new.encode())
        admin = AdminClient({"bootstrap.servers": self.stack.kafka.bootstrap})
        for made in admin.alter_user_scram_credentials([wanted]).values():
            made.result(patient(30))
        between()
        file.write_text(new, encoding="utf-8")

    def client(self, password: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    port = free_port()
    listener = f"GUARDED://{LOOPBACK}:{port}"
    of_listener = "listener.name.guarded"
    kafka = {
        "listeners": listener,
        "advertised.listeners": listener,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT"
        ),
        f"{of_listener}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{of_listener}.scram-sha-512.sasl.jaas.config": _LOGIN,
        f"{of_listener}.scram-sha-512.connections.max.reauth.ms": str(_AGAIN_MS),
    }
    with Stack(fsync=False, kafka=kafka) as stack:
        yield Guarded(stack, f"{LOOPBACK}:{port}")


def test_relay_consumer_and_producer_go_on_with_the_new_password(
    guarded: Guarded, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    guarded.set_password(secret)
    outbox_name = f"shop-{uuid4().hex[:12]}"
    toml = settings(guarded.bootstrap, name=outbox_name, transaction_timeout="30s")
    kafka = guarded.client({"file": str(secret)})
    for name in ("security.protocol", "sasl.mechanism", "sasl.username"):
        toml += f'"{name}" = "{kafka[name]}"\n'
    toml += f'"sasl.password" = {{ command = ["cat", "{secret}"], every = "1h" }}\n'
    with new_topics(guarded.stack) as make, new_database(guarded.stack) as dsn:
        topic, direct = make(1), make(1)
        installed(dsn)
        relay = RelayProcess(tmp_path / "relay", toml, {"DOVECOTE_RELAY_DSN": dsn})
        given = guarded.client(secret.read_text)
        try:
            relay.until_logged("publishing from")
            with (
                consuming(guarded.bootstrap, topic, kafka=kafka) as seen,
                Producer(dsn, given) as producer,
            ):
                for turn in range(3):
                    commit(dsn, event(topic, turn))
                    seen.has_handled(turn + 1, within=30)
                    until(
                        lambda: producer.send(event(direct, turn)) == "kafka",  # noqa: B023  # at once
                        within=30,
                        what="Kafka takes an event directly",
                    )
                    if turn < 2:
                        # The second is in the file only after the relay was refused with the old.
                        guarded.set_password(
                            secret, partial(until_refused, relay) if turn else lambda: None
                        )
                        refused(guarded, secret)
                assert [each.value for each in seen.handled] == [0, 1, 2]
            assert relay.terminate() == 0
        finally:
            relay.end()
        assert "fenced" not in relay.log
        with psycopg.connect(dsn) as conn:
            assert schema.version(conn) > 0


def until_refused(relay: RelayProcess) -> None:
    before = relay.log.count(_REFUSED)
    until(lambda: relay.log.count(_REFUSED) > before, within=60, what="the relay is refused")


def refused(guarded: Guarded, secret: Path) -> None:
    """Wait until connections that began with the old password have been asked again."""
    admin = AdminClient(guarded.client(secret.read_text(encoding="utf-8")))
    admin.list_topics(timeout=patient(10))
