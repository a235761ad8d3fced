"""The records that a verdict sends out."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dedup.retries.backoff import Backoff
from dedup.retries.copies import left
from dedup.rules.identity import Identity
from dedup.rules.policies.decode import as_json
from dedup.rules.policies.outputs import Encoded, encode_output
from dedup.rules.policies.policies import Failed, Handled
from dedup.rules.policies.results import Again, Dead, Done, Output, Retry
from outbox import envelope
from outbox.envelope import (
    ATTEMPT,
    ERROR,
    FIRST_SEEN,
    ID,
    NOT_BEFORE,
    ORIGIN,
    ROUND,
    SOURCE,
    WITHOUT_VALUE,
    Record,
)
from outbox.errors import InvalidEvent
from spark_jobs.policy.router import Router
from spark_jobs.sink.outgoing import Outgoing, Topics

NOW = 1_800_000_000_000
TOPICS = Topics(output="out", retry="retry", dead_letter="dead")
BACKOFF = Backoff(base=timedelta(seconds=8), ceiling=timedelta(minutes=1), max_attempts=3)
ROUTER = Router(topics=TOPICS, backoff=BACKOFF, now=NOW)
HEADERS = [(ID, b"e1"), ("ce_type", b"Placed"), ("n", None), ("n", b"2")]
RECORD = Record("in", 3, 44, 1_700_000_000_000, b"k", b'{"a":1}', HEADERS)
FOREIGN = RECORD._replace(headers=[("x", b"y")])


def _route(result: Done | Again | Retry | Dead, record: Record = RECORD) -> Outgoing:
    verdict = Failed(0, result) if isinstance(result, Retry | Dead) else Handled(0, result)
    (outgoing,) = ROUTER.route(verdict, record, envelope_identity(record), ())
    return outgoing


def envelope_identity(record: Record) -> Identity:
    return Identity(*envelope.identity(record), envelope.delivery(record).round)


def test_a_record_goes_on_as_it_is() -> None:
    assert _route(Done()) == Outgoing("out", b"k", b'{"a":1}', HEADERS, RECORD.timestamp, RECORD)


def test_a_record_whose_handler_wants_no_output_goes_nowhere() -> None:
    assert ROUTER.route(Handled(0, Done(())), RECORD, Identity("in", "e1"), ()) == []


def test_a_failed_record_goes_to_the_retry_topic_with_what_it_went_through() -> None:
    sent = _route(Retry("no luck"))

    wait = BACKOFF.wait(Identity("in", "e1"), attempt=1)
    assert sent._replace(headers=[]) == Outgoing("retry", b"k", b'{"a":1}', [], 0, RECORD)
    assert sent.headers == [
        (SOURCE, b"in"),
        *HEADERS,
        (ATTEMPT, b"2"),
        (ROUND, b"1"),
        (FIRST_SEEN, str(NOW).encode()),
        (NOT_BEFORE, str(NOW + round(wait.total_seconds() * 1000)).encode()),
        (ORIGIN, b"in/3/44"),
        (ERROR, b"no luck"),
    ]


def test_a_handler_may_say_how_long_its_record_waits() -> None:
    headers = dict(_route(Retry("busy", timedelta(minutes=7))).headers)

    assert headers[NOT_BEFORE] == str(NOW + 7 * 60_000).encode()


def test_another_round_burns_no_attempt_and_has_no_error() -> None:
    headers = dict(_route(Again(timedelta(seconds=1))).headers)

    assert (headers[ATTEMPT], headers[ROUND]) == (b"1", b"1")
    assert headers[NOT_BEFORE] == str(NOW + 1000).encode()
    assert ERROR not in headers


def test_origin_and_first_seen_stay_those_of_the_first_time() -> None:
    first = _route(Retry("one"))
    again = RECORD._replace(topic="retry", partition=0, offset=1, headers=first.headers)

    headers = dict(_route(Retry("two"), again).headers)

    assert (headers[ATTEMPT], headers[ROUND], headers[ERROR]) == (b"3", b"2", b"two")
    assert (headers[ORIGIN], headers[FIRST_SEEN]) == (b"in/3/44", str(NOW).encode())


@pytest.mark.parametrize("result", [Retry("no luck"), Dead("no luck")])
def test_the_last_failure_or_a_final_one_makes_a_dead_letter(result: Retry | Dead) -> None:
    record = RECORD._replace(
        headers=[*HEADERS, (ATTEMPT, b"3"), (ROUND, b"5"), (NOT_BEFORE, b"9")]
    )

    sent = _route(result, record)

    assert sent.topic == "dead"
    assert (sent.key, sent.value) == (b"k", b'{"a":1}')
    assert sent.headers == [
        (SOURCE, b"in"),
        *HEADERS,
        (ATTEMPT, b"3"),
        (ROUND, b"5"),
        (FIRST_SEEN, str(NOW).encode()),
        (ORIGIN, b"in/3/44"),
        (ERROR, b"no luck"),
    ]


def test_a_foreign_record_takes_its_id_along() -> None:
    assert dict(_route(Retry("x"), FOREIGN).headers)[ID] == b"in/3/44"
    assert dict(_route(Dead("x"), FOREIGN).headers)[ID] == b"in/3/44"
    assert _route(Done(), FOREIGN).headers == [("x", b"y")]


def test_a_record_whose_attempts_cannot_be_read_is_a_dead_letter() -> None:
    record = RECORD._replace(headers=[(ID, b"e1"), (ATTEMPT, b"many")])
    (sent,) = ROUTER.route(Failed(0, Retry("x")), record, Identity("in", "in/3/44"), ())

    assert sent.topic == "dead"
    assert b"whole number" in (dict(sent.headers)[ERROR] or b"")


def test_a_long_error_is_cut() -> None:
    assert len(dict(_route(Dead("x" * 10_000)).headers)[ERROR] or b"") == 2000


def test_what_a_topic_does_not_take_is_a_dead_letter_and_what_none_takes_one_without_value() -> (
    None
):
    sent = Outgoing("out", b"k", b"v" * 99, [("big", b"x" * 99)], 5, RECORD)

    whole = ROUTER.unwritable(sent, "too large")
    dead = ROUTER.unwritable(whole, "too large")

    assert (whole.topic, whole.key, whole.value) == ("dead", RECORD.key, RECORD.value)
    assert dict(whole.headers)[ERROR] == b"out refuses it: too large"
    assert (dead.topic, dead.key, dead.value) == ("dead", b"k", None)
    assert dict(dead.headers) == {
        ID: b"e1",
        SOURCE: b"in",
        ATTEMPT: b"1",
        ROUND: b"0",
        FIRST_SEEN: str(NOW).encode(),
        ORIGIN: b"in/3/44",
        ERROR: b"without its value, as dead refuses it: too large; before that: out refuses it: "
        b"too large",
        WITHOUT_VALUE: left(("in", 3, 44), RECORD.value).encode(),
    }
    assert dead.origin is RECORD


def test_an_output_has_the_events_envelope_and_an_id_of_its_own() -> None:
    key, value, headers = encode_output(as_json(RECORD), 2, Output({"b": 2}))

    assert (key, value) == (b"k", b'{"b":2}')
    assert dict(headers)[ID] == b"e1.2"
    assert dict(headers)["ce_type"] == b"Placed"
    assert dict(headers)["content-type"] == b"application/json"
    assert "n" not in dict(headers)


def test_an_output_may_choose_its_key_and_headers() -> None:
    output = Output(b"raw", key=None, headers=(("ce_type", "Billed"), ("h", b"1")))

    key, value, headers = encode_output(as_json(RECORD), 0, output)

    assert (key, value) == (None, b"raw")
    assert headers[-2:] == [("ce_type", b"Billed"), ("h", b"1")]
    assert [name for name, _ in headers].count("ce_type") == 1


@pytest.mark.parametrize(
    "output",
    [
        Output({1, 2}),
        *(
            Output(1, headers=given)  # type: ignore[arg-type]  # what a handler may do
            for given in (
                (("tenant", 5),),
                (("tenant", bytearray(b"a")),),
                (("ce_type", 5),),
                # At this name Kafka's client would end the process.
                (("\ud800", "x"),),
                (("tenant", "\ud800"),),
                (("", "x"),),
                (("a\0b", "x"),),
                ((5, "x"),),
                {"tenant": "a"},
                "no pairs",
                [("tenant", "a")] * 1_001,
            )
        ),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(output: Output) -> None:
    with pytest.raises(InvalidEvent):
        encode_output(as_json(RECORD), 0, output)


def test_an_output_with_its_events_headers_has_none_of_the_events_attempts() -> None:
    given = (
        (ATTEMPT, b"4"),
        (ORIGIN, b"in/0/0"),
        (ERROR, b"no"),
        ("dovecote_hops", b"2"),
        ("h", b"1"),
    )

    _, _, headers = encode_output(as_json(RECORD), 0, Output(1, headers=given))

    names = [name for name, _ in headers]
    assert names[-2:] == ["dovecote_hops", "h"]
    assert not {ATTEMPT, ORIGIN, ERROR} & set(names)


def test_the_type_of_an_event_chooses_among_the_topics_of_the_settings() -> None:
    router = replace(ROUTER, topics=replace(TOPICS, by_type={"Placed": "placed"}))
    outputs: list[Encoded] = [
        (b"k", b"1", [(envelope.TYPE, b"Placed")]),
        (b"k", b"2", [(envelope.TYPE, b"Paid")]),
    ]

    (unchanged,) = router.route(Handled(0, Done()), RECORD, Identity("in", "e1"), ())
    (foreign,) = router.route(Handled(0, Done()), FOREIGN, Identity("in", "in/3/44"), ())
    made = router.route(Handled(0, Done(())), RECORD, Identity("in", "e1"), outputs)

    assert (unchanged.topic, foreign.topic) == ("placed", "out")
    assert [each.topic for each in made] == ["placed", "out"]
