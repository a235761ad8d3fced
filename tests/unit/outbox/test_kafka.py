"""While a broker is away, a client logs only a few lines about it."""

import logging

import pytest
from confluent_kafka import Producer

from outbox.envelope import Pair, Record, require_readable
from outbox.errors import InvalidEvent
from outbox.kafka import Credentials, headers_of, kafka_logger, number
from outbox.secrets import Reread
from tests.support.waiting import until

FAIL = "[thrd:b:1/bootstrap]: b:1/bootstrap: Connect to ipv4#10.0.0.7:1 failed: Connection refused"


def test_a_line_that_differs_in_its_numbers_alone_is_said_rarely_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("outbox.kafka.time.monotonic", lambda: now)
    log = kafka_logger("test.kafka_log")
    assert log is kafka_logger("test.kafka_log")
    for turn in range(5):
        text = f"{FAIL} (after {turn}ms in state CONNECT, {turn} identical error(s))"
        log.error("%s [%s] %s", "FAIL", f"dovecote-relay#producer-{turn}", text)
    log.error("%s [%s] %s", "FAIL", "rdkafka#consumer-1", FAIL.replace("refused", "reset"))
    assert len(caplog.messages) == 2
    now += 31
    log.error("%s [%s] %s", "FAIL", "rdkafka#consumer-9", FAIL)
    log.error("%s [%s] %s", "FAIL", "rdkafka#consumer-9", FAIL)
    assert caplog.messages[2:] == [
        f"FAIL [rdkafka#consumer-9] {FAIL} (… and 4 more like it since)"
    ]


def test_who_has_not_set_up_logging_sees_none_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    kafka_logger("test.kafka_log.alone").propagate = False
    logging.getLogger("test.kafka_log.alone").error(FAIL)
    assert capsys.readouterr().err == ""


class _Message:
    def __init__(self, headers: list[Pair]) -> None:
        self._headers = headers

    def headers(self) -> list[Pair]:
        return self._headers

    def set_headers(self, headers: list[Pair]) -> None:
        self._headers = headers


def test_too_many_headers_are_not_kept_and_their_number_is_said() -> None:
    found: list[Pair] = [(f"h{n}", b"v") for n in range(100_000)]
    assert headers_of(_Message(found[:1_000])) == found[:1_000]

    message = _Message(found)
    for _ in range(2):
        headers = headers_of(message)
        record = Record("orders", 0, 7, 0, b"k", b"v", headers)
        with pytest.raises(InvalidEvent, match="it has 100,000 of them, and at most 1,000 are"):
            require_readable(record)
    assert len(message.headers()) == 1


class Refusal:
    """A broker's refusal of user and password."""

    def code(self) -> int:
        return -169


def test_a_password_that_a_client_cannot_take_ends_no_renewal() -> None:
    passwords = iter(["old", "a\0b"])
    client = Producer(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "old",
        }
    )
    password = Reread(lambda *, anew: next(passwords, "new"))  # noqa: ARG005  # the protocol
    credentials = Credentials({"sasl.username": "ann", "sasl.password": password})
    credentials.keep(client)
    credentials.heard(Refusal())
    until(lambda: credentials._known == ("ann", "new"), within=20, what="the next password")
    credentials.let_go()


@pytest.mark.parametrize(
    ("text", "found"),
    [("45000", 45_000), ("0x10", 16), ("010", 8), (" 7", 7), ("-1", -1), ("45s", 45), (0, 0)],
)
def test_a_number_is_read_as_the_client_reads_it(text: object, found: int) -> None:
    assert number(text) == found
    with pytest.raises(ValueError, match="'soon' is not a number"):
        number("soon")
