"""A policy over the rows of one shuffle partition."""

import json
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.retries.backoff import Backoff
from dedup.rules.identity import identity
from dedup.rules.policies import decode
from dedup.rules.policies.departures import Exits
from dedup.rules.policies.policies import POLICIES, Handled, Skipped, by_key
from dedup.rules.policies.results import Done
from dedup.settings.policy import ExactSettings, FirstMatchSettings, LatestSettings, PolicySettings
from outbox import envelope
from outbox.envelope import Record
from outbox.errors import BadSettings
from spark_jobs.policy.evaluation import evaluate, load
from spark_jobs.policy.router import Router
from spark_jobs.rows.homes import homes
from spark_jobs.sink.markers import Counts, kind
from spark_jobs.sink.outgoing import Evaluation, Outgoing, Topics
from tests.unit.spark_jobs.made_rows import record, rows

ROUTER = Router(
    topics=Topics(output="out", retry="retry", dead_letter="dead"),
    backoff=Backoff(base=timedelta(seconds=1), ceiling=timedelta(seconds=9), max_attempts=3),
    now=1_800_000_000_000,
)
HANDLER = "tests.unit.spark_jobs.handlers:by_value"


def _doing(offset: int, what: str, key: str = "k", id_: str | None = None) -> Record:
    return record(offset, key, id_=id_, value=json.dumps({"do": what}).encode())


def _evaluated(settings: PolicySettings, *records: Record) -> Evaluation:
    return evaluate(rows(*records), load(settings), ROUTER)


def test_what_is_no_exception_is_a_failed_attempt_and_what_is_no_result_is_refused_once() -> None:
    settings = ExactSettings(handler=HANDLER)

    found = _evaluated(settings, _doing(0, "leave", id_="a"), _doing(1, "true", id_="b"))

    assert _sent(found) == [("retry", 0), ("dead", 1)]
    told = [dict(each.headers)[envelope.ERROR] or b"" for each in found.outgoing]
    assert told[0].startswith(b"GeneratorExit (handlers.py:")
    assert told[1].startswith(b"the handler returned True, not Done")


def test_a_handler_that_exits_ends_the_job_with_its_reason() -> None:
    with pytest.raises(Exits) as raised:
        _evaluated(ExactSettings(handler=HANDLER), _doing(0, "exit"))
    assert str(raised.value.reason).startswith("the handler called sys.exit(3) (handlers.py:")


def _sent(found: Evaluation) -> list[tuple[str, int]]:
    return [(each.topic, each.origin.offset) for each in found.outgoing]


def test_the_first_that_succeeds_wins_and_failures_before_it_go_their_ways() -> None:
    settings = FirstMatchSettings(handler=HANDLER, filter='value.do != "filtered"')

    found = _evaluated(
        settings,
        _doing(0, "filtered"),
        _doing(1, "skip"),
        _doing(2, "retry"),
        _doing(3, "raise"),
        _doing(4, "dead"),
        _doing(5, "refuse"),
        _doing(6, "done", id_="e"),
        _doing(7, "done", id_="e"),
        _doing(8, "done"),
        _doing(9, "done", "z"),
    )

    assert _sent(found) == [
        ("retry", 2),
        ("retry", 3),
        ("dead", 4),
        ("dead", 5),
        ("out", 6),
        ("out", 9),
    ]
    assert found.counts == Counts(
        rows=10,
        handled=2,
        skipped={"duplicate": 1, "filtered": 1, "handler": 1, "superseded": 1},
        retried=2,
        dead=2,
    )


def test_what_asks_to_come_again_wins_its_key_and_goes_round() -> None:
    found = _evaluated(FirstMatchSettings(handler=HANDLER), _doing(0, "again"), _doing(1, "done"))

    assert _sent(found) == [("retry", 0)]
    assert found.counts == Counts(rows=2, handled=1, skipped={"superseded": 1})


def test_a_handlers_outputs_go_in_the_records_place() -> None:
    found = _evaluated(ExactSettings(handler=HANDLER), _doing(0, "split"), _doing(1, "done"))

    assert [(each.key, each.value) for each in found.outgoing] == [
        (b"k", b'{"part":1}'),
        (b"other", b'{"part":2}'),
        (b"k", b'{"do": "done"}'),
    ]
    assert found.counts == Counts(rows=2, handled=2)


def test_an_output_that_cannot_be_written_is_the_handlers_failure() -> None:
    found = _evaluated(FirstMatchSettings(handler=HANDLER), _doing(0, "unwritable"))

    assert _sent(found) == [("retry", 0)]


def test_a_value_that_cannot_be_read_does_not_win() -> None:
    found = _evaluated(FirstMatchSettings(), record(0, value=b"{"), record(1, value=b"{}"))

    assert _sent(found) == [("retry", 0), ("out", 1)]


def test_raw_values_are_nobodys_business() -> None:
    found = _evaluated(FirstMatchSettings(value="raw"), record(0, value=b"{"))

    assert _sent(found) == [("out", 0)]


def test_the_newest_wins() -> None:
    found = _evaluated(
        LatestSettings(handler=HANDLER), _doing(0, "done"), _doing(1, "done"), _doing(2, "skip")
    )

    assert _sent(found) == [("out", 1)]
    assert found.counts == Counts(rows=3, handled=1, skipped={"handler": 1, "superseded": 1})


def test_records_without_a_key_are_all_handled() -> None:
    found = _evaluated(FirstMatchSettings(), *(record(n, None) for n in range(3)))

    assert _sent(found) == [("out", 0), ("out", 1), ("out", 2)]


def test_equal_values_are_copies_where_settings_say_so() -> None:
    same = [record(n, id_=str(n), value=b"1") for n in range(2)]

    assert _sent(_evaluated(ExactSettings(by="value"), *same)) == [("out", 0)]
    assert _sent(_evaluated(ExactSettings(by="id"), *same)) == [("out", 0), ("out", 1)]


def test_a_later_round_of_an_event_is_no_copy() -> None:
    found = _evaluated(ExactSettings(), record(0, id_="e", round_=1), record(1, id_="e", round_=2))

    assert _sent(found) == [("out", 0), ("out", 1)]


def test_an_unknown_handler_is_refused() -> None:
    with pytest.raises(BadSettings, match="handler"):
        load(FirstMatchSettings(handler="tests.unit.spark_jobs.handlers:nobody"))


@given(
    st.lists(
        st.builds(
            record,
            st.integers(0, 99),
            st.sampled_from([None, "a", "b"]),
            id_=st.sampled_from([None, "1", "2", "3"]),
            value=st.sampled_from([b"1", b"2", b"{"]),
        ),
        min_size=1,
        unique_by=lambda each: each.offset,
    ),
    st.sampled_from([FirstMatchSettings(), ExactSettings(), LatestSettings()]),
)
def test_rows_come_to_what_the_policy_alone_says(
    records: list[Record], settings: PolicySettings
) -> None:
    records.sort(key=lambda each: each.offset)

    found = evaluate(rows(*records), load(settings), ROUTER)

    verdicts = [
        verdict
        for _, of_key in by_key(records, lambda each: each.key)
        for verdict in POLICIES[settings.type](
            of_key,
            matches=lambda each: decode.as_json(each) is not None,
            handle=lambda _: Done(),
            identity=identity,
        )
    ]
    handled = {each.record.offset for each in verdicts if isinstance(each, Handled)}
    assert {each.origin.offset for each in found.outgoing if each.topic == "out"} == handled
    skipped = Counter(kind(each.reason) for each in verdicts if isinstance(each, Skipped))
    assert found.counts.skipped == dict(skipped)
    assert found.counts.rows == len(verdicts) == len(records)


def test_a_key_of_another_lane_goes_home_through_the_retry_topic_undecided() -> None:
    (home,) = homes([b"k"], 2)
    records = [record(0, id_="e", round_=2), record(1), record(2, None)]

    found = evaluate(rows(*records), load(FirstMatchSettings()), ROUTER, (1 - home, 2))

    assert _sent(found) == [("retry", 0), ("retry", 1), ("out", 2)]
    assert found.counts == Counts(rows=3, handled=1, retried=2)
    assert found.misplaced == 2
    first, second, _ = (envelope.delivery(_as_record(each)) for each in found.outgoing)
    assert (first.attempt, first.round, first.origin) == (1, 2, "in/0/0")
    assert (second.attempt, second.round, second.not_before) == (1, 0, None)


def test_a_key_of_this_lane_is_decided_here() -> None:
    (home,) = homes([b"k"], 2)

    found = evaluate(rows(record(0), record(1)), load(FirstMatchSettings()), ROUTER, (home, 2))

    assert found.misplaced == 0
    assert _sent(found) == [("out", 0)]


def test_a_record_of_another_lane_whose_rounds_cannot_be_read_is_dead() -> None:
    (home,) = homes([b"k"], 2)
    history = [(envelope.ATTEMPT, b"1"), (envelope.ROUND, b"many"), (envelope.ORIGIN, b"in/0/0")]
    odd = record(0)._replace(headers=history)

    found = evaluate(rows(odd), load(FirstMatchSettings()), ROUTER, (1 - home, 2))

    assert _sent(found) == [("dead", 0)]
    assert found.counts == Counts(rows=1, dead=1)


def _as_record(each: Outgoing) -> Record:
    return Record(each.topic, 0, 0, 0, each.key, each.value, each.headers)
