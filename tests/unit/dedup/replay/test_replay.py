import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dedup.replay.replay import OPERATORS, Kind, Line, replay, start
from dedup.replay.trace import Traced
from dedup.rules.policies.results import (
    Again,
    Dead,
    Done,
    NonRetriable,
    Output,
    Result,
    Retry,
    Skip,
)
from dovecote.process.settings.models import Settings
from outbox.errors import BadSettings
from outbox.event import Event

RESULTS: dict[str, Result] = {
    "again": Again(timedelta(seconds=30)),
    "skip": Skip("another shop's"),
    "retry": Retry("busy", timedelta(milliseconds=1500)),
    "dead": Dead("closed"),
    "nothing": Done(()),
    "two": Done(
        (Output({"n": 1}), Output("text", key=b"other", headers=(("tag", b"red"), ("none", None))))
    ),
    "bytes": Done((Output(b"\xff\x00"), Output(b"text", key=None))),
    "unwritable": Done((Output(object()),)),
}


def settle(event: Event) -> Result | None:
    """Return the result that the value names."""
    do = event.value.get("do") if isinstance(event.value, dict) else None
    if do == "raise":
        raise LookupError(str(event.key))
    if do == "raise for good":
        raise NonRetriable(str(event.key))
    return None if do is None else RESULTS[do]


def record(offset: int, key: str | None = "k", value: object = None, **more: object) -> bytes:
    line = {"topic": "orders", "partition": 0, "offset": offset, "timestamp": 1_000 + offset}
    return json.dumps(line | {"key": key, "value": value} | more).encode()


def run(
    tmp_path: Path, policy: str, lines: Iterable[bytes], **table: object
) -> list[dict[str, object]]:
    file = tmp_path / "job.toml"
    settings_ = "\n".join(f"{name} = {json.dumps(value)}" for name, value in table.items())
    file.write_text(f"[operator]\n{settings_}\n[kafka]\n'bootstrap.servers' = 'x:1'\n")
    return [dict(line) for line in replay(start(policy, file, environ={}), lines)]


def brief(lines: Iterable[Line]) -> list[tuple[object, ...]]:
    return [(line["offset"], line["kind"], line.get("reason")) for line in lines]


def handler() -> str:
    return f"{__name__}:settle"


def test_first_match_takes_a_keys_first_record_that_passes_and_succeeds(tmp_path: Path) -> None:
    lines = [
        record(0, value={"amount": 0}),
        record(1, value={"amount": 5, "do": "raise"}),
        record(2, value={"amount": 5}, headers={"ce_id": "e"}),
        record(3, value={"amount": 5}, headers={"ce_id": "e"}),
        record(4, value={"amount": 5}, headers={"ce_id": "e", "dovecote_round": "1"}),
        record(5, value={}, key="other"),
    ]
    found = run(tmp_path, "first_match", lines, filter="value.amount > 0", handler=handler())
    missing = "filter 'value.amount > 0' failed: Key `\"amount\"` was not found"
    assert brief(found) == [
        (0, "skip", "filtered"),
        (1, "error", "LookupError: k (test_replay.py:44 in settle)"),
        (2, "result", None),
        (3, "skip", "duplicate of e"),
        (4, "skip", "superseded by e"),
        (5, "error", missing),
    ]


def test_exact_keeps_every_event_once_by_id_or_by_value(tmp_path: Path) -> None:
    lines = [
        record(0, value=1, headers={"ce_id": "a"}),
        record(1, value=1, headers={"ce_id": "b"}),
        record(2, value=2, headers={"ce_id": "a"}),
        record(3, value=1, headers={"ce_id": "a", "dovecote_round": "1"}),
    ]
    assert brief(run(tmp_path, "exact", lines)) == [
        (0, "result", None),
        (1, "result", None),
        (2, "skip", "duplicate of a"),
        (3, "result", None),
    ]
    assert brief(run(tmp_path, "exact", lines, by="value")) == [
        (0, "result", None),
        (1, "skip", "duplicate of a"),
        (2, "result", None),
        (3, "skip", "duplicate of a"),
    ]


def test_latest_takes_a_keys_newest_record_that_passes(tmp_path: Path) -> None:
    lines = [record(0), record(1), record(2, value={"do": "skip"})]
    assert brief(run(tmp_path, "latest", lines, handler=handler())) == [
        (0, "skip", "superseded by orders/0/1"),
        (1, "result", None),
        (2, "skip", "handler: another shop's"),
    ]


def test_a_result_is_the_record_unless_the_handler_says_what_to_write(tmp_path: Path) -> None:
    whole = {
        "kind": "result",
        "key": "k",
        "at": 0,
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "id": "orders/0/0",
        "round": 0,
    }
    does = [{"do": name} for name in ("again", "nothing", "two", "bytes")]
    lines = [record(0, key="k", value=7)]
    assert run(tmp_path, "exact", lines) == [whole | {"value": 7}]

    found = run(
        tmp_path,
        "exact",
        [record(n, value=value) for n, value in enumerate(does)],
        handler=handler(),
    )
    outputs = [
        {k: v for k, v in line.items() if k == "offset" or k not in whole} for line in found
    ]
    assert outputs == [
        {"offset": 0, "value": {"do": "again"}, "again": True, "after_ms": 30_000},
        {"offset": 2, "value": {"n": 1}},
        {
            "offset": 2,
            "value": "text",
            "output_key": "other",
            "headers": [["tag", "red"], ["none", None]],
        },
        {"offset": 3, "value_base64": "/wA="},
        {"offset": 3, "value": "text", "output_key": None},
    ]


def test_an_error_says_where_the_record_goes(tmp_path: Path) -> None:
    does = ["raise", "raise for good", "retry", "dead", "unwritable"]
    no_json = (
        "event value cannot be written as JSON: JSON has no object; convert it, or pass bytes"
    )
    lines = [record(n, key=f"k{n}", value={"do": do}) for n, do in enumerate(does)]
    found = run(tmp_path, "first_match", lines, handler=handler())
    assert [(e["kind"], e["reason"], e["goes_to"], e.get("after_ms")) for e in found] == [
        ("error", "LookupError: k0 (test_replay.py:44 in settle)", "retry", None),
        ("error", "k1", "dead", None),
        ("error", "busy", "retry", 1_500),
        ("error", "closed", "dead", None),
        ("error", no_json, "retry", None),
    ]


def test_a_batch_is_that_many_records_of_all_keys_and_the_last_may_be_smaller(
    tmp_path: Path,
) -> None:
    lines = [record(n, key="a" if n % 2 else "b") for n in range(7)]
    found = run(tmp_path, "first_match", lines, batch_size=3)
    assert [line["offset"] for line in found if line["kind"] == "result"] == [0, 1, 3, 4, 6]


def test_a_batch_is_told_key_by_key_in_the_order_in_which_keys_appear(tmp_path: Path) -> None:
    lines = [record(0, key="b"), record(1, key="a"), record(2, key="b"), record(3, key=None)]
    assert [line["offset"] for line in run(tmp_path, "exact", lines)] == [0, 2, 1, 3]


def test_records_without_a_key_are_never_grouped(tmp_path: Path) -> None:
    lines = [record(n, key=None, headers={"ce_id": "same"}) for n in range(2)]
    for policy in ("first_match", "exact", "latest"):
        assert brief(run(tmp_path, policy, lines)) == [(0, "result", None), (1, "result", None)]


def test_an_empty_key_is_a_key(tmp_path: Path) -> None:
    found = run(tmp_path, "first_match", [record(0, key=""), record(1, key="")])
    assert [line["kind"] for line in found] == ["result", "skip"]


def test_the_key_may_be_made_of_fields_of_the_value(tmp_path: Path) -> None:
    pairs = [("a", 1), ("a", 1), ("a", "1"), ("a", None), ("a", None)]
    lines = [record(n, value={"from": f, "to": t}) for n, (f, t) in enumerate(pairs)]
    lines += [record(5, value={"from": "a"}), record(6, value="text"), record(7, value=None)]
    found = run(tmp_path, "first_match", lines, key=["from", "to"])
    no_to = 'the value has no field "to", which the key is made of'
    no_from = 'the value has no field "from", which the key is made of'
    assert [(line["key"], *brief([line])[0]) for line in found] == [
        (["a", 1], 0, "result", None),
        (["a", 1], 1, "skip", "superseded by orders/0/0"),
        (["a", "1"], 2, "result", None),
        (None, 3, "result", None),
        (None, 4, "result", None),
        (None, 5, "error", no_to),
        (None, 6, "error", no_from),
        (None, 7, "error", no_from),
    ]


def test_a_value_that_cannot_be_read_does_not_win_even_unfiltered(tmp_path: Path) -> None:
    too_large = record(0, value=1).replace(b'"value": 1', b'"value": 1e999')
    poison = record(1, headers={"dovecote_round": "x"})
    found = run(tmp_path, "first_match", [too_large, poison, record(2)])
    assert [line["kind"] for line in found] == ["error", "error", "result"]


def test_raw_values_reach_the_handler_as_bytes(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        "exact",
        [record(0, value="not {json"), record(1, value={"a": 1})],
        value="raw",
        filter='value.startswith("not") or value == "{\\"a\\":1}"',
    )
    assert [line["value"] for line in found] == ["not {json", {"a": 1}]


def test_the_wall_clock_is_the_traces_and_never_goes_back(tmp_path: Path) -> None:
    lines = [
        record(0),
        record(1, arrival=50),
        record(2),
        b'{"advance_to": 70}',
        record(3, arrival=60),
        b'{"advance_to": 65}',
        b'{"end": true}',
    ]
    found = run(tmp_path, "exact", lines, batch_size=1)
    assert [line["at"] for line in found] == [0, 50, 50, 70]
    assert run(tmp_path, "exact", lines, batch_size=3)[-1]["at"] == 70


def test_an_empty_trace_has_no_results(tmp_path: Path) -> None:
    assert run(tmp_path, "latest", []) == []
    assert run(tmp_path, "latest", [b'{"end": true}']) == []


def test_results_come_as_soon_as_a_batch_is_full(tmp_path: Path) -> None:
    taken = 0

    def trace() -> Iterator[bytes]:
        nonlocal taken
        for n in range(1_000_000):
            taken += 1
            yield record(n, key=str(n % 3))

    file = tmp_path / "job.toml"
    file.write_text("[operator]\nbatch_size = 10\n")
    results = replay(start("first_match", file, environ={}), trace())
    for batch in range(1, 50):
        assert [next(results)["kind"] for _ in range(10)].count("result") == 3
        assert taken == 10 * batch


values = st.sampled_from([None, *({"do": do} for do in ("raise", "skip", "retry", "again"))])
traces = st.lists(st.tuples(st.sampled_from(["a", "b", None]), values, st.sampled_from("xyz")))


@pytest.mark.parametrize("policy", OPERATORS)
@given(found=traces, batch_size=st.integers(1, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_record_of_a_trace_is_told_of_once_and_always_the_same(
    policy: str,
    found: list[tuple[str | None, object, str]],
    batch_size: int,
    tmp_path: Path,
) -> None:
    lines = [
        record(n, key, value, headers={"ce_id": id_}) for n, (key, value, id_) in enumerate(found)
    ]
    told = run(tmp_path, policy, lines, handler=handler(), batch_size=batch_size)
    assert sorted(int(str(line["offset"])) for line in told) == list(range(len(lines)))
    assert told == run(tmp_path, policy, lines, handler=handler(), batch_size=batch_size)


def start_with(tmp_path: Path, text: str, name: str = "first_match", **environ: str) -> object:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return start(name, file, environ=environ)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"operator: is missing"),
        ("[operator", r"is not TOML"),
        ('[operator]\ntype = "latest"', r"operator: type is \"latest\" here, but first_match was"),
        ('[operator]\ntype = "sessions"\ngap = "5s"', r"type is \"sessions\" here"),
        ("[operator]\nbatch_size = 0", r"operator\.batch_size: must be greater"),
        ("[operator]\nhold_key = true", r"operator\.hold_key: there is no such setting"),
        ('[operator]\nby = "value"', r"operator\.by: there is no such setting"),
        ("[operator]\nkey = []", r"operator\.key"),
        ('[operator]\nkey = "customer"', r"operator\.key"),
        ('[operator]\nfilter = "amount > 0"', r"filter 'amount > 0' .* `amount` not found"),
        ('[operator]\nhandler = "nowhere:f"', r"handler 'nowhere:f': looked for the module"),
        ("operator = 3", "operator: must be a table"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        start_with(tmp_path, text)


def test_the_file_may_name_the_operator_that_is_asked_for(tmp_path: Path) -> None:
    start_with(tmp_path, '[operator]\ntype = "exact"\nby = "value"', "exact")


def test_an_unknown_operator_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="'pairs'; there are first_match, exact, latest"):
        start_with(tmp_path, "[operator]", "pairs")


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"cannot read .*nowhere\.toml"):
        start("latest", tmp_path / "nowhere.toml", environ={})


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"operator\.batch_size: must be greater"):
        start_with(
            tmp_path,
            "[operator]\nbatch_size = 500",
            DOVECOTE_REPLAY_OPERATOR__BATCH_SIZE="0",
        )


class CountSettings(Settings):
    every: int


class Count:
    """An operator of another kind, which tracks time and reports it."""

    def __init__(self, settings: CountSettings) -> None:
        self._every = settings.every
        self._seen = 0

    def record(self, record: Traced, now: int) -> Iterator[Line]:
        self._seen += 1
        if self._seen % self._every == 0:
            yield {"kind": "update", "key": record.key, "at": now}

    def advance(self, now: int) -> Iterator[Line]:
        yield {"kind": "result", "at": now}

    def end(self, now: int) -> Iterator[Line]:
        yield {"kind": "result", "at": now, "value": self._seen}


def test_another_operator_is_an_entry_in_the_table_of_operators(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("[operator]\nevery = 2")
    operators = {**OPERATORS, "count": Kind(CountSettings, Count)}
    counting = start("count", file, environ={}, operators=operators)
    lines = [record(0), record(1, key="b", arrival=3), b'{"advance_to": 9}', b'{"end": true}']
    assert list(replay(counting, lines)) == [
        {"kind": "update", "key": "b", "at": 3},
        {"kind": "result", "at": 9},
        {"kind": "result", "at": 9, "value": 2},
    ]
