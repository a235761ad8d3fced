"""Every part on a broker that wants tokens of an identity provider, which live for seconds."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from outbox.errors import BadSettings
from outbox.producer.producer import Producer
from outbox.tokens.source import for_client
from proof.identities.provider import SECRET, Guarded, Provider, guarded
from proof.identities.run import Options, run
from relay.operating.doctor import examine
from tests.support.consuming import consuming
from tests.support.fix_stack import MakeTopic, new_database, new_topics
from tests.support.msk_listener import listening
from tests.support.relaying import COMMAND, Relays, commit, event, installed, published, relays
from tests.support.waiting import busyness, patient, until

LIFE = 6.0
WRONG = "wrong-tops3cret"


def lives() -> float:
    """
    Return how long tokens live, in seconds, where parts of five processes need them at once.

    A client asks for the next one in the last fifth of a life. It needs the processor by then.
    """
    return LIFE * max(2.0, busyness() / 2)


@pytest.fixture(scope="module")
def servers() -> Iterator[Guarded]:
    with guarded(LIFE) as running:
        yield running


@pytest.fixture(autouse=True)
def works(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "servers" in request.fixturenames:
        request.getfixturevalue("servers").provider.failing = 0


@pytest.fixture
def fleet(servers: Guarded, tmp_path: Path) -> Iterator[Relays]:
    with (
        new_database(servers.stack) as dsn,
        relays(tmp_path, installed(dsn), servers.stack.kafka.bootstrap) as made,
    ):
        yield made


@pytest.fixture
def topic(servers: Guarded) -> Iterator[MakeTopic]:
    with new_topics(servers.stack) as make:
        yield make


@pytest.mark.slow
def test_connections_that_end_with_their_token_are_renewed_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """Relay, standby, consumer, push, and a producer that is idle most of the time."""
    life = lives()
    options = Options(directory=tmp_path, seconds=2.5 * life, life=life, spark=False)
    outcome = run(options, print)
    assert set(outcome.lost.values()) == {0}
    assert set(outcome.doubled.values()) == {0}
    assert max(outcome.unready.values()) < patient(3)
    assert outcome.direct.keys() == {"kafka"}
    logs = "".join(file.read_text() for file in tmp_path.glob("*.log"))
    assert "uthentication" not in logs, "no client was ever turned away"
    assert SECRET not in logs


@pytest.mark.slow
def test_after_a_provider_that_failed_for_two_lives_every_part_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    """The broker ends a connection with its token, so that nothing moves until there is one."""
    life = lives()
    options = Options(directory=tmp_path, seconds=3.5 * life, life=life, failing=2, spark=False)
    outcome = run(options, print)
    assert set(outcome.lost.values()) == {0}
    assert set(outcome.doubled.values()) == {0}
    assert outcome.named == ["consumer", "push", "relay", "standby"]
    assert outcome.healed < patient(20)
    logs = "".join(file.read_text() for file in tmp_path.glob("*.log"))
    assert logs.count("Kafka tokens come again") == len(outcome.named)
    assert SECRET not in logs


def test_a_part_begins_once_its_provider_is_there_and_says_what_it_waits_for(
    servers: Guarded, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    servers.provider.failing = 503
    relay = fleet.start(**client(servers))
    relay.until_logged("no new Kafka token")
    with consuming(servers.bootstrap, name, kafka=servers.kafka(scope="other")) as consumer:
        health = consumer.consumer.health
        until(lambda: "HTTP 503" in health.ready().reason, within=5, what="its trouble")
        until(lambda: "HTTP 503" in relay.get("/readyz").body, within=5, what="its trouble")
        assert relay.get("/readyz").status == 503
        assert "there was none yet" in relay.get("/readyz").body
        servers.provider.failing = 0
        relay.until_logged("publishing from", within=30)
        commit(fleet.dsn, event(name, 1))
        consumer.has_handled(1, within=30)
    assert "dovecote_kafka_token_renewals_total" in relay.get("/metrics").body
    assert relay.terminate() == 0
    assert SECRET not in relay.log


def test_an_outage_of_a_broker_that_refuses_an_expired_token_is_over_with_the_next_one(
    servers: Guarded, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active(**client(servers), transaction_timeout="3s")
    servers.provider.failing = 503
    until(
        lambda: "the last one expired" in relay.get("/readyz").body,
        within=2 * LIFE,
        what="its end",
    )
    commit(fleet.dsn, event(name, 1))
    relay.until_logged("outage", within=30)
    servers.provider.failing = 0
    assert len(published(fleet, name, 1)) == 1
    until(lambda: relay.get("/readyz").status == 200, within=20, what="ready again")
    assert relay.terminate() == 0


def test_the_direct_producer_goes_through_the_outbox_while_it_has_no_token(
    servers: Guarded, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    kafka: dict[str, Any] = servers.kafka()
    kafka["identity"] = servers.provider.table(scope="producer")
    servers.provider.failing = 503
    fleet.active()
    with Producer(fleet.dsn, kafka) as producer:
        assert producer.send(event(name, 1)) == "outbox"
        assert len(published(fleet, name, 1)) == 1
        assert producer.state.broker == "down"
        servers.provider.failing = 0
        until(lambda: producer.send(event(name, 2)) == "kafka", within=30, what="a token")
    for wrong in ({"provider": "oidc"}, {"provider": "none"}, "x"):
        with pytest.raises(BadSettings, match=r"^kafka: "):
            Producer(fleet.dsn, {**kafka, "identity": wrong})


def test_doctor_asks_for_a_token(servers: Guarded, fleet: Relays) -> None:
    settings = relay_settings(fleet, servers)
    found = [each.what for each in examine(settings) if each.level == "ok"]
    assert any(each.endswith("/token gives a token for Kafka") for each in found)
    wrong = relay_settings(fleet, servers, client_secret=WRONG)
    failed = [each for each in examine(wrong) if each.level == "fail"]
    assert "invalid_client" in failed[0].what
    assert WRONG not in str(failed)


def relay_settings(fleet: Relays, servers: Guarded, **changed: str) -> Any:
    from relay.settings import RelaySettings

    return RelaySettings.model_validate(
        {"dsn": {"env": "DSN"}, "name": fleet.name, "kafka": servers.kafka(**changed)},
        context={"environ": {"DSN": fleet.dsn}},
    )


def client(servers: Guarded, **changed: object) -> dict[str, Any]:
    """Return what a relay is started with: properties, and the identity in a variable."""
    kafka = servers.kafka(**changed)
    return {"environ": {"DOVECOTE_RELAY_KAFKA__IDENTITY": kafka.pop("identity")}, "kafka": kafka}


CONSUME = """
topics = ["orders"]
group = "shop"
handler = "builtins:print"
[kafka]
"""
RELAY = 'dsn = "dbname=shop"\n[kafka]\n'
PUSH = 'dsn = "dbname=shop"\n[brokers.default]\n'
COMMANDS = {"relay run": RELAY, "consume run": CONSUME, "push serve": PUSH}


def told(command: str, folder: Path, kafka: dict[str, Any], *options: str) -> tuple[int, str, str]:
    """Run a command with a file that has these properties; return status, output and error."""
    kafka = dict(kafka)
    identity = json.loads(kafka.pop("identity"))
    secret = identity.pop("client_secret", None)
    under = "brokers.default" if command == "push serve" else "kafka"
    lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in kafka.items()]
    lines += [f"[{under}.identity]", *(f"{k} = {json.dumps(v)}" for k, v in identity.items())]
    if secret is not None:
        lines.append('client_secret = { env = "IDP_SECRET" }')
    file = folder / "settings.toml"
    file.write_text(COMMANDS[command] + "\n".join(lines))
    done = subprocess.run(
        [COMMAND, *command.split(), "--config", str(file), *options],
        env={**os.environ, "IDP_SECRET": secret or ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_settings_that_cannot_work_are_one_line_with_status_2(
    command: str, tmp_path: Path
) -> None:
    with Provider(60) as provider:
        kafka = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "SASL_PLAINTEXT"}
        good = {**kafka, "identity": provider.text()}
        status, said, error = told(command, tmp_path, good, "--check")
        assert (status, error) == (0, "")
        assert said.strip().endswith("/token gives a token")
        wrong = {**kafka, "identity": provider.text(client_secret=WRONG)}
        unknown = {**kafka, "identity": provider.text(provider="none")}
        for properties, says in (
            (wrong, "refuses to give a token: HTTP 401: invalid_client"),
            (unknown, "there is no provider 'none'"),
        ):
            status, said, error = told(command, tmp_path, properties, "--check")
            assert (status, said) == (2, ""), error
            assert says in error
            assert len(error.strip().splitlines()) <= 2
            assert "Traceback" not in error
            assert WRONG not in error


def test_a_check_says_that_a_provider_is_away_and_fails_for_it_not(tmp_path: Path) -> None:
    with Provider(60) as provider:
        kafka = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "SASL_PLAINTEXT"}
        provider.failing = 503
        good = {**kafka, "identity": provider.text()}
        status, said, error = told("consume run", tmp_path, good, "--check")
    assert (status, error) == (0, "")
    assert "but oidc http://127.0.0.1" in said
    assert "gives no token: HTTP 503" in said


@pytest.mark.parametrize("command", ["relay run", "consume run"])
def test_a_secret_that_is_refused_ends_a_part_at_its_start(command: str, tmp_path: Path) -> None:
    with Provider(60) as provider:
        kafka = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "SASL_PLAINTEXT"}
        wrong = {**kafka, "identity": provider.text(client_secret=WRONG)}
        status, said, error = told(command, tmp_path, wrong)
    assert status == 2
    (last,) = [line for line in error.splitlines() if line.startswith("dovecote: ")]
    assert last.startswith("dovecote: [kafka.identity]: oidc http://127.0.0.1")
    assert "401: invalid_client" in last
    assert WRONG not in error + said
    assert "Traceback" not in error


def test_msk_is_sent_what_its_signer_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKSHOP")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tops3cret")
    signed: list[str] = []
    sign = MSKAuthTokenProvider.generate_auth_token

    def kept(region: str) -> tuple[str, int]:
        token, expires = sign(region)
        signed.append(token)
        return token, expires

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token", kept)
    text = json.dumps({"provider": "aws-msk", "region": "eu-west-1"})
    with listening() as (address, sent):
        own = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT"}
        admin = AdminClient({**for_client({**own, "identity": text}), "log_level": 0})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=patient(1))
        until(lambda: sent, within=10, what="a client that shows who it is")
        del admin
    (token,) = signed
    assert set(sent) == {f"n,,\x01auth=Bearer {token}\x01\x01".encode()}
