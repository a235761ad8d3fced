"""One token for all clients of a process: renewed in time, kept while its provider fails."""

import gc
import logging
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import pytest
from confluent_kafka import Consumer

from dovecote.process.health import HealthReport
from dovecote.process.settings.loading import load
from dovecote.process.states import State
from dovecote.process.tokens import ReadyWithTokens, TokenNumbers, asked
from outbox.errors import BadSettings, NoClient, NoToken
from outbox.tokens.source import all_renewals, await_token, for_client, lasting, source_of
from proof.identities.provider import SECRET, Provider
from relay.settings import RelaySettings
from tests.support.certificates import half_renewed
from tests.support.waiting import patient, until

LIFE = 2.0


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(LIFE) as running:
        yield running
    until(lambda: not renewing(), within=5, what="no thread left that renews")


def renewing() -> list[threading.Thread]:
    """
    Return the threads that renew tokens of clients that are not gone.

    A thread that is just renewing has its source in hand; what it lets go is collected afterwards.
    """
    gc.collect()
    return [each for each in threading.enumerate() if each.name == "dovecote tokens"]


class Well:
    def ready(self) -> HealthReport:
        return HealthReport(ok=True, role="active", reason="progressing", state=State.IDLE)


def test_all_clients_have_one_token_and_it_is_renewed_before_it_expires(
    provider: Provider,
) -> None:
    properties = {"identity": provider.text(), "client.id": "x"}
    one, other = for_client(properties), for_client({"identity": provider.text()})
    assert one["sasl.mechanism"] == "OAUTHBEARER"
    assert one["security.protocol"] == "SASL_SSL"
    assert one["client.id"] == "x"
    first = one["oauth_cb"]("")[0]
    assert first == other["oauth_cb"]("")[0]
    assert len(provider.asked) == 1
    until(lambda: one["oauth_cb"]("")[0] != first, within=LIFE, what="another token")
    assert provider.asked[1].at - provider.asked[0].at < LIFE


def test_nothing_is_asked_without_an_identity() -> None:
    assert for_client({"client.id": "x"}) == {"client.id": "x"}
    assert source_of({}) is None
    await_token({}, threading.Event(), print)


def test_a_provider_that_fails_is_named_and_the_token_is_kept_until_it_gives_another(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    give = for_client({"identity": provider.text()})["oauth_cb"]
    provider.failing = 503
    ready = ReadyWithTokens(Well())
    until(lambda: "HTTP 503" in ready.ready().reason, within=5, what="its trouble")
    last = give("")[0]
    found = ready.ready()
    assert (found.ok, found.role, found.state) == (True, "active", State.FAILING)
    assert found.reason.startswith("progressing; no new Kafka token for 0 s: oidc http://127")
    assert "the present one is valid for" in found.reason
    until(lambda: "the last one expired" in ready.ready().reason, within=LIFE + 2, what="its end")
    value, expires, _, _ = give("")
    assert value == last
    assert expires > time.time(), "the client would ask again after ten seconds only"
    provider.failing = 0
    until(lambda: ready.ready().reason == "progressing", within=12, what="another token")
    assert ready.ready().state is State.IDLE
    assert give("")[0] != last
    said = [each.getMessage() for each in caplog.records if each.name == "dovecote.tokens"]
    assert len(said) == 2, "once when it fails, and once when it is over"
    assert "HTTP 503: temporarily_unavailable" in said[0]
    assert said[1].startswith("Kafka tokens come again from oidc http://127")
    assert not any(each in caplog.text for each in (SECRET, last))


def test_a_refusal_and_a_provider_that_is_away_differ_for_a_new_client(
    provider: Provider,
) -> None:
    provider.failing = 500
    with pytest.raises(NoToken, match=r"gives no token: HTTP 500"):
        for_client({"identity": provider.text(scope="a")}, patience=patient(0.5))
    assert asked([{"identity": provider.text(scope="a")}]).startswith("; but oidc http://127")
    provider.failing = 0
    with pytest.raises(BadSettings, match=r"\[kafka.identity\].*401: invalid_client") as refused:
        for_client({"identity": provider.text(client_secret="wrong-tops3cret")})  # noqa: S106  # of this test
    assert "wrong-tops3cret" not in str(refused.value)
    assert asked([{"identity": provider.text()}]).endswith("/token gives a token")


def test_a_part_waits_for_its_first_token_as_long_as_it_is_not_stopped(
    provider: Provider,
) -> None:
    provider.failing = 500
    stop = threading.Event()
    said: list[str] = []
    waiting = threading.Thread(
        target=await_token, args=({"identity": provider.text()}, stop, said.append)
    )
    waiting.start()
    until(lambda: said, within=5, what="what it waits for")
    assert "there was none yet" in said[-1]
    provider.failing = 0
    waiting.join(patient(15))
    assert not waiting.is_alive()
    provider.failing = 500
    waiting = threading.Thread(
        target=await_token, args=({"identity": provider.text(scope="b")}, stop, said.append)
    )
    waiting.start()
    stop.set()
    waiting.join(patient(5))
    assert not waiting.is_alive()


def test_a_secret_that_is_replaced_is_used_for_the_next_token(
    provider: Provider, tmp_path: Path
) -> None:
    secret, file = tmp_path / "secret", tmp_path / "relay.toml"
    secret.write_text(SECRET)
    file.write_text(
        'dsn = "dbname=shop"\n[kafka]\n"bootstrap.servers" = "localhost:1"\n[kafka.identity]\n'
        f'provider = "oidc"\ntoken_url = "{provider.url}/token"\nclient_id = "dovecote"\n'
        f'client_secret = {{ file = "{secret}" }}\n'
    )
    settings = load(RelaySettings, file, prefix="NONE", environ={})
    give = for_client(settings.producer_properties("any"))["oauth_cb"]
    before = give("")[0]
    provider.secret = "another"  # noqa: S105  # of this test
    secret.write_text("another")
    until(lambda: give("")[0] != before, within=LIFE + 5, what="a token for another secret")
    travelled = pickle.loads(pickle.dumps({**settings.kafka}))  # noqa: S301  # our own
    assert before not in str(travelled), "the token does not travel, but what gets one"
    assert for_client(travelled)["oauth_cb"]("")[0]


def test_a_source_ends_with_its_last_client(provider: Provider) -> None:
    properties = {"identity": provider.text()}
    held = for_client(properties)
    known = ref(source_of(properties) or test_a_source_ends_with_its_last_client)
    gc.collect()
    assert known() is not None
    del held
    until(lambda: not renewing(), within=5, what="the source ends")
    assert known() is None
    assert list(all_renewals()) == []


def test_a_forked_process_renews_for_itself(provider: Provider) -> None:
    give = for_client({"identity": provider.text()})["oauth_cb"]
    before = give("")[0]
    if (child := os.fork()) == 0:
        try:
            until(lambda: give("")[0] != before, within=LIFE + 5, what="a token in the child")
        except BaseException:  # noqa: BLE001  # its status says so
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0


def test_its_numbers_are_metrics(provider: Provider) -> None:
    assert list(TokenNumbers().collect()) == []
    held = for_client({"identity": provider.text()})
    provider.failing = 500
    until(lambda: next(all_renewals()).failed, within=5, what="a failure")
    found = {
        sample.name: sample.value
        for metric in TokenNumbers().collect()
        for sample in metric.samples
        if sample.labels == {"provider": "oidc"}
    }
    assert found["dovecote_kafka_token_renewals_total"] == 1
    assert found["dovecote_kafka_token_failures_total"] >= 1
    assert found["dovecote_kafka_token_expiry_seconds"] == pytest.approx(time.time(), abs=30)
    del held


def test_a_provider_of_somebody_else_may_raise_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "odd_tokens.py").write_text(
        "def odd(options):\n"
        "    def ask():\n"
        "        raise RuntimeError('no answer to ' + options['own_secret'])\n"
        "    return ask\n"
    )
    about = tmp_path / "odd_tokens-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-tokens\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dovecote.token_providers]\nodd = odd_tokens:odd\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = '{"provider": "odd", "own_secret": "tops3cret"}'
    with pytest.raises(NoToken, match=r"odd gives no token: RuntimeError: no answer to \*\*\*"):
        for_client({"identity": text}, patience=patient(1))


def test_a_token_that_never_expires_is_renewed_all_the_same() -> None:
    with Provider(2**63 - 1) as provider:
        source = source_of({"identity": provider.text()})
        assert source is not None
        source.require()
        assert source.give()[1] < time.time() + 86_400
        assert source.turn() <= 43_200  # no thread can wait for ever
        del source
    until(lambda: not renewing(), within=5, what="no thread left that renews")


def full(*_: object, **__: object) -> Consumer:
    msg = "Failed to initialize thread local storage"
    raise RuntimeError(msg)


def odd(*_: object, **__: object) -> Consumer:
    msg = "something else"
    raise RuntimeError(msg)


def test_a_certificate_whose_key_is_not_there_yet_makes_no_client_for_now(tmp_path: Path) -> None:
    kafka, finish = half_renewed(tmp_path)
    with pytest.raises(NoClient, match=r"^Kafka: .*key values mismatch"):
        lasting(Consumer, {**kafka, "group.id": "g"}, logging.getLogger("test"))
    finish()
    lasting(Consumer, {**kafka, "group.id": "g"}, logging.getLogger("test")).close()


def test_a_process_with_as_many_clients_as_it_can_have_says_so() -> None:
    with pytest.raises(NoClient, match=r"1,024 keys .* Share the work among processes"):
        lasting(full, {}, logging.getLogger("test"))
    with pytest.raises(RuntimeError, match="something else"):
        lasting(odd, {}, logging.getLogger("test"))
