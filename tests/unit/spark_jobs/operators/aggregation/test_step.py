"""Every field and status of the operator's manual; tests are named after its sections."""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest

from outbox.envelope import (
    CONTENT_TYPE,
    FIRED,
    ID,
    REVISION,
    WINDOW_END,
    WINDOW_EVENTS,
    WINDOW_START,
)
from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.state import decoded, encoded
from spark_jobs.operators.step import Failed, Late, Made, Skipped
from spark_jobs.rows.packets import BucketRows
from spark_jobs.stateful.outcome import OperatorTopics, Outcome, Reporter
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    DAILY,
    DSL,
    SUMS,
    Running,
    event,
    loaded,
    place,
    reasons,
    running,
    step,
    values,
)

ECHO = "def aggregate(IN, Env):\n    return struct(OUT={expression})\n"
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}],
}
OTHER = {**ORDER, "name": "Other", "fields": [{"name": "id", "type": "string"}]}


def _said(folder: Path, expression: str, **changes: Any) -> Any:
    config = step(dsl={"path": "aggregate.star"}, **changes)
    given = running(folder, config, aggregate=ECHO.replace("{expression}", expression))
    (found,) = values(given.at(1000, event(id=1, time=5), event(id=2, time=6)))
    return found


def test_a1_name_is_required_and_kept(tmp_path: Path) -> None:
    assert loaded(tmp_path, step(name="orders")).step.name == "orders"
    config = step()
    del config["name"]
    with pytest.raises(BadSettings, match=r"\n  name: is missing"):
        loaded(tmp_path, config)


def test_a2_environment_variables_are_loaded_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "vars.json").write_text('{"currency": "EUR"}')
    located = {"source": "file", "path": "vars.json"}
    found = _said(tmp_path, "Env.loadedVariables['currency']", environmentVariables=located)
    assert found == "EUR"
    (tmp_path / "vars.json").write_text("[]")
    with pytest.raises(BadSettings, match=r"vars\.json must hold a JSON object"):
        loaded(tmp_path, step(environmentVariables=located))


@pytest.mark.parametrize("given", ["json", {"type": "json"}])
def test_a3_format_input_and_output_are_independent(tmp_path: Path, given: Any) -> None:
    lines = {"type": "csv", "columnSeparator": ";", "fieldNames": ["id", "sum"]}
    config = step(format={"input": given, "output": lines}, dsl={"path": "aggregate.star"})
    script = "def aggregate(IN, Env):\n    return struct(OUT=IN)\n"
    said = running(tmp_path, config, aggregate=script).at(
        0, event(id="a", sum=1.5), event(id="b;c", sum=None)
    )
    assert [each.value for each in said if isinstance(each, Made)] == [b"a;1.5", b'"b;c";']


def test_a4_key_is_what_events_are_grouped_by(tmp_path: Path) -> None:
    given = running(tmp_path, step(dsl={"path": "aggregate.star"}), aggregate=SUMS)
    said = given.at(0, event(id=1, key="a"), event(id=2, key="b"), event(id=3, key="a"))
    assert values(said) == [{"ids": [1, 3]}]


def test_a5_trigger_is_required_and_of_four_kinds(tmp_path: Path) -> None:
    for trigger in (COUNT, DAILY):
        assert loaded(tmp_path, step(trigger=trigger)).step.trigger.type == trigger["type"]
    with pytest.raises(BadSettings, match="'count', 'dsl', 'time', 'timeFromEvent'"):
        loaded(tmp_path, step(trigger={"type": "never"}))
    without = step()
    del without["trigger"]
    with pytest.raises(BadSettings, match=r"\n  trigger: is missing"):
        loaded(tmp_path, without)


def test_a6_dsl_is_the_place_of_the_aggregation_script(tmp_path: Path) -> None:
    assert _said(tmp_path, "len(IN)") == 2
    with pytest.raises(BadSettings, match=r"dsl.path: there is no file none.star in "):
        loaded(tmp_path, step(dsl={"path": "none.star"}))


@pytest.mark.parametrize("full", [True, False, None])
def test_a7_state_full_keeps_the_cache_over_windows_and_is_false_by_default(
    tmp_path: Path, *, full: bool | None
) -> None:
    script = (
        "def aggregate(IN, Env):\n"
        "    Env.cache['n'] = Env.cache.get('n', 0) + 1\n"
        "    return struct(OUT=Env.cache['n'])\n"
    )
    changes = {} if full is None else {"stateFull": full}
    given = running(tmp_path, step(dsl={"path": "aggregate.star"}, **changes), aggregate=script)
    four = [event(id=n, time=n) for n in range(4)]
    assert values(given.at(0, *four)) == ([1, 2] if full else [1, 1])


def test_a7_a_key_is_forgotten_a_while_after_its_last_event(tmp_path: Path) -> None:
    script = (
        "def aggregate(IN, Env):\n"
        "    Env.cache['n'] = Env.cache.get('n', 0) + 1\n"
        "    return struct(OUT=Env.cache['n'])\n"
    )
    config = step(
        trigger={**COUNT, "count": 1}, stateFull=True, dsl={"path": "a.star"}, forgetAfter=5000
    )
    given = running(tmp_path, config, a=script)
    assert values(given.at(0, event())) + values(given.at(4999, event(time=1))) == [1, 2]
    assert given.at(9998) == []
    assert list(given.state.keys) == [b"k"]
    assert given.at(9999) == []
    assert given.state.keys == {}
    assert values(given.at(9999, event(time=2))) == [1]


def test_a8_destination_is_where_outputs_go(tmp_path: Path) -> None:
    given = running(tmp_path, step(destination=place("sums")))
    said = given.at(0, event(id=1), event(id=2))
    assert [each.topic for each in said if isinstance(each, Made)] == ["sums", "sums"]


def test_a9_error_gets_what_fails_with_the_original_bytes(tmp_path: Path) -> None:
    (failed,) = running(tmp_path, step()).at(0, event(b"{no json"))
    assert isinstance(failed, Failed)
    assert failed.record.raw == b"{no json"
    assert "line 1 column 2" in failed.reason


def test_a10_source_is_a_file_or_a_script_folder_which_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "own.star").write_text(SUMS)
    file = {"source": "file", "path": "own.star"}
    assert loaded(tmp_path, step(dsl=file)).aggregate is not None
    inner = loaded(tmp_path, step(dsl={"path": "a.star"}), a=SUMS)
    assert inner.step.dsl is not None
    assert inner.step.dsl.source == "classpath"
    (tmp_path / "a.star").write_text("# beside\n" + SUMS)
    beside = loaded(tmp_path, step(dsl={"source": "file", "path": "a.star"}))
    assert beside.aggregate is not None
    assert inner.aggregate is not None
    assert (beside.aggregate.text, inner.aggregate.text) == ("# beside\n" + SUMS, SUMS)
    with pytest.raises(BadSettings, match="leads out of"):
        loaded(tmp_path, step(dsl={"path": "../own.star"}))


def test_a11_json_xml_csv_and_avro_come_in_and_go_out(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    avro = {"type": "avro", "schema": [{"source": "file", "path": "order.avsc"}]}
    lines = {"type": "csv", "columnSeparator": ";", "fieldNames": ["sum", "id"]}
    for given, one, expected in (
        ("json", b'{"id":1}', {"id": 1}),
        ("xml", b"<o a='1'><id>1</id></o>", {"o": {"@a": "1", "id": "1"}}),
        (lines, b"7,5;1", {"id": "1", "sum": "7,5"}),
        (avro, b"\x02", {"id": 1}),
    ):
        config = step(
            format={"input": given, "output": given},
            trigger={**COUNT, "count": 1},
            dsl={"path": "same.star"},
        )
        script = "def aggregate(IN, Env):\n    return struct(OUT=IN[0])\n"
        (said,) = running(tmp_path, config, same=script).at(0, event(one))
        assert isinstance(said, Made), said
        assert said.shown == expected
        again = running(tmp_path, config, same=script).at(0, event(said.value))
        assert values(again) == [expected]


def test_a12_schema_is_that_of_the_header_else_the_default_else_the_first(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "other.avsc").write_text(json.dumps(OTHER))
    first: dict[str, Any] = {"source": "file", "path": "order.avsc"}
    second = {"source": "file", "path": "other.avsc"}

    def shown(name: bytes | None, **second_too: Any) -> Any:
        schemas = [first, {**second, **second_too}]
        config = step(
            format={"input": {"type": "avro", "schema": schemas}},
            trigger={**COUNT, "count": 1},
            dsl={"path": "same.star"},
        )
        same = "def aggregate(IN, Env):\n    return struct(OUT=IN[0])\n"
        headers = [] if name is None else [("schemaName", name)]
        said = running(tmp_path, config, same=same).at(0, event(b"\x02a", headers=headers))
        return (values(said) or reasons(said))[0]

    assert shown(b"Other") == shown(b"shop.Other") == shown(b"other") == {"id": "a"}
    assert shown(None, default=True) == {"id": "a"}
    assert shown(None) == "1 bytes are left over: it is of another schema"
    assert shown(b"none") == 'there is no schema "none"'
    assert shown(b"\xff") == "header schemaName is not UTF-8 text"
    first |= {"default": True}
    with pytest.raises(BadSettings, match="more than one is marked as default"):
        shown(None, default=True)


def test_a12_an_output_has_the_schema_of_its_header(tmp_path: Path) -> None:
    for name, schema in (("order", ORDER), ("other", OTHER)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    schemas = [{"source": "file", "path": f"{name}.avsc"} for name in ("order", "other")]
    config = step(format={"output": {"type": "avro", "schema": schemas}}, dsl={"path": "two.star"})
    script = (
        "def aggregate(IN, Env):\n"
        "    return struct(OUT=[{'id': 7}, {'id': 'x'}],\n"
        "                  HEADERS=[{}, {'kafka': {'schemaName': 'Other'}}])\n"
    )
    said = running(tmp_path, config, two=script).at(0, event(id=1), event(id=2))
    found = [each for each in said if isinstance(each, Made)]
    assert [fastavro.schemaless_reader(io.BytesIO(found[0].value or b""), ORDER, None)] == [
        {"id": 7}
    ]
    assert fastavro.schemaless_reader(io.BytesIO(found[1].value or b""), OTHER, None) == {
        "id": "x"
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"type": "topic"}, "destination.type"),
        ({"topic": "a b"}, "destination.topic"),
        ({"config": {"type": "kafka"}}, "destination.config.name: is missing"),
        ({"config": {"type": "jms", "name": "x"}}, "destination.config.type"),
        ({"config": {"type": "kafka", "name": "x"}}, "on several connections"),
        ({"topic": "deadletter"}, "topics of their own"),
    ],
)
def test_a13_destinations_are_topics_of_a_named_connection(
    tmp_path: Path, change: Mapping[str, Any], error: str
) -> None:
    with pytest.raises(BadSettings, match=error):
        loaded(tmp_path, step(destination={**place("output"), **change}))


def test_k1_key_is_the_records_own(tmp_path: Path) -> None:
    given = running(tmp_path, step())
    said = given.at(0, event(id=1, key=None))
    assert [type(each) for each in said] == [Skipped]
    assert reasons(said) == ["no key"]
    assert len(given.at(0, event(id=1, key="a"), event(id=1, key="a"))) == 2


def test_k2_headers_are_joined_by_a_bar(tmp_path: Path) -> None:
    config = step(key={"type": "headers", "keys": ["tenant", "order"]})
    one = event(id=1, headers=[("order", b"7"), ("tenant", b"t"), ("x", b"y")])
    said = running(tmp_path, config).at(0, one, one, event(id=1, headers=[("tenant", b"t")]))
    assert [each.window for each in said if isinstance(each, Made)] == [b"t|7", b"t|7"]
    assert reasons(said)[2] == 'there is no header "order" to make the key of'


@pytest.mark.parametrize("algorithm", [None, "SHA-256", "SHA-1", "SHA-512", "MD5"])
def test_k3_hash_is_of_the_body_and_sha_256_by_default(
    tmp_path: Path, algorithm: str | None
) -> None:
    key = {"type": "hash"} if algorithm is None else {"type": "hash", "algorithm": algorithm}
    said = running(tmp_path, step(key=key)).at(0, event(id=1), event(id=2), event(id=1))
    name = (algorithm or "SHA-256").replace("-", "").lower()
    expected = hashlib.new(name, b'{"id": 1}').hexdigest().encode()
    assert [each.window for each in said if isinstance(each, Made)] == [expected, expected]


def test_k4_key_is_what_a_script_returns(tmp_path: Path) -> None:
    config = step(key={"type": "dsl", "path": "key.star"})
    given = running(tmp_path, config, key="def key(IN, Env):\n    return IN['order']\n")
    said = given.at(0, event(order="a"), event(order="b"), event(order="a"), event(none=1))
    assert [each.window for each in said if isinstance(each, Made)] == [b"a", b"a"]
    assert reasons(said)[2] == 'key: Key `"order"` was not found (key.star:2:12)'


def test_k5_key_script_sees_topic_key_and_headers_and_nothing_else_counts(tmp_path: Path) -> None:
    script = (
        "def key(IN, Env):\n"
        "    return Env.SourceTopic + Env.SourceKey + Env.kafka.headers['h'] + str(IN['id'])\n"
    )
    config = step(key={"type": "dsl", "path": "key.star"}, trigger={**COUNT, "count": 1})
    (said,) = running(tmp_path, config, key=script).at(0, event(id=1, headers=[("h", b"x")]))
    assert isinstance(said, Made)
    assert said.window == b"orderskx1"
    for result in ("None", "struct(OUT=1)", "[1]", "''", "True"):
        script = f"def key(IN, Env):\n    return {result}\n"
        (failed,) = running(tmp_path, config, key=script).at(0, event(id=1))
        assert "key must return text" in reasons([failed])[0]


def test_w1_a_key_has_one_window_that_ends_by_the_gap_after_its_last_event(
    tmp_path: Path,
) -> None:
    trigger = {**COUNT, "count": 9, "shouldFireAtProcessingTime": False}
    given = running(
        tmp_path, step(trigger=trigger, dsl={"path": "aggregate.star"}), aggregate=SUMS
    )
    # Each is 100 after the last one, which is within the gap.
    assert given.at(1000, *(event(id=n, time=100 * n) for n in range(3))) == []
    said = given.at(1000, event(id=3, time=301))
    assert values(said) == [{"ids": [0, 1, 2]}]
    assert reasons(said) == ["gap"]


def test_w2_on_timeout_all_events_are_handed_over_and_the_window_is_cleared(
    tmp_path: Path,
) -> None:
    config = step(trigger={**COUNT, "count": 9}, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, aggregate=SUMS)
    given.at(1000, event(id=1, time=0), event(id=2, time=10))
    assert given.deadline == 1100
    assert given.at(1099) == []
    assert values(given.at(1100)) == [{"ids": [1, 2]}]
    assert given.at(5000) == []
    assert given.end(6000) == []


def test_w3_windows_are_merged_before_the_trigger_is_called(tmp_path: Path) -> None:
    given = running(
        tmp_path,
        step(
            trigger={**COUNT, "count": 3, "shouldFireAtProcessingTime": False},
            dsl={"path": "aggregate.star"},
        ),
        aggregate=SUMS,
    )
    given.at(0, event(id=1, time=500))
    assert given.at(0, event(id=2, time=600)) == []
    # Its window reaches into the first, and so do those after it, which it would miss by itself.
    (said,) = given.at(0, event(id=3, time=420))
    assert isinstance(said, Made)
    assert (said.start, said.end, said.events) == (420, 600, 3)


def test_w3_an_event_whose_window_is_closed_is_late(tmp_path: Path) -> None:
    given = running(
        tmp_path,
        step(trigger={**COUNT, "count": 9, "shouldFireAtProcessingTime": False}),
    )
    given.at(0, event(id=1, time=500))
    (late,) = given.at(0, event(id=2, time=399))
    assert isinstance(late, Late)
    assert (late.reason, late.close_time) == ("its window is closed", 400)
    assert given.at(0, event(id=2, time=400)) == []  # touching windows merge


def test_t1_count_fires_when_it_is_reached_and_clears(tmp_path: Path) -> None:
    trigger = {**COUNT, "count": 3}
    config = step(trigger=trigger, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, aggregate=SUMS)
    said = given.at(0, *(event(id=n, time=n) for n in range(7)))
    assert values(said) == [{"ids": [0, 1, 2]}, {"ids": [3, 4, 5]}]
    assert reasons(said) == ["count", "count"]


@pytest.mark.parametrize("trigger", [COUNT, DSL])
def test_t1_and_t2_timeout_is_required(tmp_path: Path, trigger: Mapping[str, Any]) -> None:
    given = {name: value for name, value in trigger.items() if name != "timeout"}
    with pytest.raises(BadSettings, match=r"trigger.timeout: is missing"):
        loaded(tmp_path, step(trigger=given), trigger="def trigger(IN, Env):\n    pass\n")


def test_t2_a_script_trigger_has_a_timeout_that_hands_over_and_clears(tmp_path: Path) -> None:
    given = running(
        tmp_path,
        step(trigger=DSL, dsl={"path": "aggregate.star"}),
        trigger="def trigger(IN, Env):\n    return 'continue'\n",
        aggregate=SUMS,
    )
    assert given.at(0, event(id=1)) == []
    assert given.at(60, event(id=2, time=60)) == []
    said = given.at(100)
    assert (values(said), reasons(said)) == ([{"ids": [1, 2]}], ["first_timeout"])


def test_t3_time_fires_once_a_day_and_forgets_keys_after_empty_intervals(tmp_path: Path) -> None:
    trigger = {**DAILY, "time": "11:05:00+03:00", "timePattern": "HH:mm:ssXXX"}
    config = step(trigger=trigger, dsl={"path": "aggregate.star"}, stateFull=True)
    given = running(tmp_path, config, aggregate=SUMS)
    day, fires = 86_400_000, (8 * 60 + 5) * 60_000
    assert given.at(0, event(id=1)) == []
    assert given.deadline == fires
    assert given.at(fires - 1, event(id=2, time=99_999_999)) == []  # there is no gap
    said = given.at(fires)
    assert (values(said), reasons(said)) == ([{"ids": [1, 2]}], ["time"])
    for empty in (1, 2):
        assert given.at(fires + empty * day) == []
        assert given.deadline == fires + (empty + 1) * day
    assert list(given.state.keys) == [b"k"]
    assert given.at(fires + 3 * day) == []
    assert given.state.keys == {}
    assert given.deadline is None


@pytest.mark.parametrize(
    ("time", "pattern", "hour"), [("11:05", "HH:mm", 2), ("11:05+03:00", "HH:mmXXX", 8)]
)
def test_t3_time_zone_counts_where_the_pattern_has_no_offset(
    tmp_path: Path, time: str, pattern: str, hour: int
) -> None:
    trigger = {**DAILY, "time": time, "timePattern": pattern, "timeZone": "Asia/Tokyo"}
    given = running(tmp_path, step(trigger=trigger))
    given.at(0, event(id=1))
    assert given.deadline == (hour * 60 + 5) * 60_000


def test_t3_days_that_a_job_was_down_are_no_empty_intervals(tmp_path: Path) -> None:
    trigger = {**DAILY, "maxEmptyIntervals": 1}
    config = step(trigger=trigger, dsl={"path": "aggregate.star"}, stateFull=True)
    given = running(tmp_path, config, aggregate=SUMS)
    day, fires = 86_400_000, (11 * 60 + 5) * 60_000
    given.at(0, event(id=1))
    # It starts again on the fourth day, and reads what has come since; then it has caught up.
    late = fires + 3 * day + 1_000
    assert given.at(late, event(id=2), event(id=3), behind=True) == []
    assert values(given.at(late + 60_000)) == [{"ids": [1, 2, 3]}]
    assert list(given.state.keys) == [b"k"]
    assert given.deadline == fires + 4 * day
    assert given.at(fires + 4 * day) == []
    assert given.state.keys == {}


def test_t4_time_from_event_is_what_a_script_finds_in_the_first_event(tmp_path: Path) -> None:
    trigger = {
        "type": "timeFromEvent",
        "path": "when.star",
        "timePattern": "HH:mm:ss",
        "maxEmptyIntervals": 1,
    }
    config = step(trigger=trigger, dsl={"path": "aggregate.star"})
    when = "def time(IN, Env):\n    return IN['at']\n"
    given = running(tmp_path, config, when=when, aggregate=SUMS)
    assert given.at(0, event(id=1, at="00:00:01"), event(id=2, at="00:00:09")) == []
    assert given.deadline == 1000
    assert values(given.at(1000)) == [{"ids": [1, 2]}]
    assert given.at(1000, event(id=3, at="00:00:00")) == []
    assert given.deadline == 86_400_000  # past already: tomorrow
    (failed,) = given.at(2000, event(id=4, at="9 o'clock", key="b"))
    assert reasons([failed]) == ['"9 o\'clock" is not a time of the pattern "HH:mm:ss"']


def test_t4_time_zone_counts_here_too(tmp_path: Path) -> None:
    trigger = {
        "type": "timeFromEvent",
        "path": "when.star",
        "timePattern": "HH:mm",
        "timeZone": "Asia/Tokyo",
    }
    given = running(
        tmp_path, step(trigger=trigger), when="def time(IN, Env):\n    return '11:05'\n"
    )
    given.at(0, event(id=1))
    assert given.deadline == (2 * 60 + 5) * 60_000


def test_t5_trigger_script_runs_on_every_event_and_sees_its_environment(tmp_path: Path) -> None:
    script = (
        "def trigger(IN, Env):\n"
        "    seen = Env.cache.get('seen', [])\n"
        "    seen.append([IN['id'], Env.SourceTopic, Env.SourceKey, Env.kafka.headers['h'],\n"
        "                 Env.TriggerFireMs])\n"
        "    Env.cache['seen'] = seen\n"
        "    return 'fireAndPurge' if len(seen) == 2 else 'continue'\n"
    )
    aggregate = "def aggregate(IN, Env):\n    return struct(OUT={'seen': Env.cache['seen']})\n"
    config = step(trigger=DSL, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, trigger=script, aggregate=aggregate)
    header = [("h", b"x")]
    given.at(70, event(id=1, headers=header))
    (found,) = values(given.at(80, event(id=2, headers=header)))
    assert found["seen"] == [[1, "orders", "k", "x", 70], [2, "orders", "k", "x", 80]]


@pytest.mark.parametrize(
    ("status", "said", "then"),
    [
        ("'continue'", [], [1, 2]),
        ("'fire'", ["script"], [1, 2]),
        ("'purge'", ["purged"], [2]),
        ("'fireAndPurge'", ["script"], [2]),
        ("None", ["script"], [2]),
        ("'whatever'", ["script"], [2]),
        ("42", ["script"], [2]),
        ("struct(status='fire', cache={'a': 1})", ["script"], [1, 2]),
        ("struct(status='continue', OUT=1, HEADERS=2)", [], [1, 2]),
    ],
)
def test_t6_status_of_a_trigger_says_what_is_handed_over_and_what_is_kept(
    tmp_path: Path, status: str, said: list[str], then: list[int]
) -> None:
    script = f"def trigger(IN, Env):\n    return {status} if IN['id'] == 1 else 'continue'\n"
    config = step(trigger=DSL, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, trigger=script, aggregate=SUMS)
    first = given.at(0, event(id=1))
    assert reasons(first) == said
    given.at(0, event(id=2))
    rest = given.end(10)
    assert values(rest) == [{"ids": then}]
    assert [each.revision for each in rest if isinstance(each, Made)] == [
        2 if "'fire'" in status else 1
    ]


@pytest.mark.parametrize(("flag", "fires"), [(None, 100), (True, 100), (False, 150)])
def test_t7_should_fire_at_processing_time_is_a_deadline_after_the_first_event(
    tmp_path: Path, *, flag: bool | None, fires: int
) -> None:
    said = {} if flag is None else {"shouldFireAtProcessingTime": flag}
    trigger = {**COUNT, "count": 9, **said}
    given = running(tmp_path, step(trigger=trigger))
    given.at(0, event(id=1))
    given.at(50, event(id=2, time=50))
    assert given.deadline is not None
    assert given.at(fires - 1) == []
    assert reasons(given.at(fires)) == ["gap" if flag is False else "first_timeout"] * 2


def test_t7_no_clock_closes_a_window_while_the_source_is_behind(tmp_path: Path) -> None:
    given = running(tmp_path, step(trigger={**COUNT, "count": 9}))
    given.at(0, event(id=1), behind=True)
    assert given.at(500, event(id=2, time=20), behind=True) == []
    assert given.deadline == 600
    assert len(given.at(600)) == 2


def test_f1_aggregate_sees_its_events_and_its_environment(tmp_path: Path) -> None:
    sources = "[[[s.SourceTopic, s.SourceKey, s.kafka.headers] for s in Env.sources]]"
    assert _said(tmp_path, sources) == [["orders", "k", {}], ["orders", "k", {}]]
    counted = "[[Env.AggregationKey, Env.AggregationEventCount, Env.AggregationWindowTimeMs]]"
    assert _said(tmp_path, counted) == ["k", 2, 0]
    assert _said(tmp_path, "[[Env.cache, Env.loadedVariables, IN]]") == [
        {},
        {},
        [{"id": 1}, {"id": 2}],
    ]


def test_f1_window_time_is_how_long_the_window_was_there(tmp_path: Path) -> None:
    config = step(trigger={**COUNT, "count": 9}, dsl={"path": "aggregate.star"})
    script = ECHO.replace("{expression}", "Env.AggregationWindowTimeMs")
    given = running(tmp_path, config, aggregate=script)
    given.at(1000, event(id=1))
    assert values(given.at(1100)) == [100]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("OUT={'a': 1}", [("output", b"k", {"a": 1}, {})]),
        ("OUT=[1, 2]", [("output", b"k", 1, {}), ("output", b"k", 2, {})]),
        (
            "OUT=[1, 2], HEADERS=[{'TargetKey': 'x'}, {'TargetTopic': 'more'}]",
            [("output", b"x", 1, {}), ("more", b"k", 2, {})],
        ),
        (
            "OUT=5, HEADERS={'BranchName': 'big', 'kafka': {'a': 'b', 'n': 1, 'f': True}}",
            [("bigs", b"k", 5, {"a": b"b", "n": b"1", "f": b"true"})],
        ),
    ],
)
def test_f2_out_is_one_event_or_a_list_and_headers_direct_each(
    tmp_path: Path, result: str, expected: list[Any]
) -> None:
    config = step(dsl={"path": "a.star"}, branches={"big": place("bigs")}, targetTopics=["more"])
    script = f"def aggregate(IN, Env):\n    return struct({result})\n"
    said = running(tmp_path, config, a=script).at(0, event(id=1), event(id=2))
    assert [
        (each.topic, each.key, each.shown, dict(each.headers[1:]))
        for each in said
        if isinstance(each, Made)
    ] == expected


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("OUT=[1, 2], HEADERS={}", "OUT has 2 events, so HEADERS must be a list of as many"),
        ("OUT=[1, 2], HEADERS=[{}]", "HEADERS must be a list of 2"),
        ("OUT=1, HEADERS=[1]", "HEADERS must be an object"),
        ("OUT=1, HEADERS={'kafka': {'a': {}}}", "HEADERS.kafka.a is nested: headers are flat"),
        ("OUT=1, HEADERS={'kafka': 1}", "HEADERS.kafka must be an object"),
        ("OUT=1, HEADERS={'targetTopic': 'x'}", "not targetTopic"),
        ("OUT=1, HEADERS={'TargetKey': 5}", "HEADERS.TargetKey must be text"),
        ("OUT=1, HEADERS={'TargetTopic': 'else'}", 'TargetTopic "else" is no topic of this step'),
        ("OUT=1, HEADERS={'BranchName': 'x'}", 'BranchName "x" is no branch of this step'),
        ("OUT=1, HEADER={}", "a struct has OUT, HEADERS, status and cache, not HEADER"),
        ("status=5", "aggregate must return a status or a struct"),
    ],
)
def test_f2_what_cannot_be_followed_is_an_error_of_every_event(
    tmp_path: Path, result: str, error: str
) -> None:
    script = f"def aggregate(IN, Env):\n    return struct({result})\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [type(each) for each in said] == [Failed, Failed]
    assert all(error in reason for reason in reasons(said))


@pytest.mark.parametrize("result", ["'decline'", "struct(OUT=1, status='decline')"])
def test_f3_decline_filters_the_events(tmp_path: Path, result: str) -> None:
    script = f"def aggregate(IN, Env):\n    return {result}\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [type(each) for each in said] == [Skipped, Skipped]
    assert reasons(said) == ["declined", "declined"]


def test_f3_passthrough_passes_the_messages_on_unchanged_but_for_headers(tmp_path: Path) -> None:
    script = (
        "def aggregate(IN, Env):\n"
        "    return struct(status='passthrough', HEADERS={'kafka': {'seen': 'yes'}})\n"
    )
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    one = event(b'{ "id" :1}', headers=[("a", b"1"), ("seen", b"no")])
    said = given.at(0, one, event(id=2, key="k"))
    found = [each for each in said if isinstance(each, Made)]
    assert [each.value for each in found] == [b'{ "id" :1}', b'{"id": 2}']
    assert found[0].headers == [("a", b"1"), ("seen", b"yes")]
    assert found[1].headers == [("seen", b"yes")]


@pytest.mark.parametrize(("result", "count"), [("struct(OUT=1, status='x')", 1), ("'x'", 0)])
def test_f3_any_other_status_ends_the_script_and_what_was_filled_counts(
    tmp_path: Path, result: str, count: int
) -> None:
    script = f"def aggregate(IN, Env):\n    return {result}\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    assert len(values(given.at(0, event(id=1), event(id=2)))) == count


def test_f4_a_failing_script_sends_every_event_to_the_error_step_and_goes_on(
    tmp_path: Path,
) -> None:
    script = "def aggregate(IN, Env):\n    return struct(OUT=IN[0]['id'] // (IN[1]['id'] - 2))\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [each.record.raw for each in said if isinstance(each, Failed)] == [
        b'{"id": 1}',
        b'{"id": 2}',
    ]
    assert all("a.star:2:23" in reason for reason in reasons(said))
    assert values(given.at(0, event(id=4), event(id=4))) == [2]


def test_f4_what_failed_is_not_handed_over_again(tmp_path: Path) -> None:
    script = "def aggregate(IN, Env):\n    return struct(OUT=[1 // e['id'] for e in IN])\n"
    config = step(trigger=DSL, dsl={"path": "a.star"})
    always = "def trigger(IN, Env):\n    return 'fire'\n"
    given = running(tmp_path, config, a=script, trigger=always)
    assert [type(each) for each in given.at(0, event(id=0))] == [Failed]
    assert values(given.at(0, event(id=1))) == [1]


def test_f4_an_event_that_the_output_format_cannot_hold_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    avro = {"type": "avro", "schema": [{"source": "file", "path": "order.avsc"}]}
    config = step(format={"output": avro}, dsl={"path": "a.star"})
    script = "def aggregate(IN, Env):\n    return struct(OUT={'id': 'x'})\n"
    said = running(tmp_path, config, a=script).at(0, event(id=1), event(id=2))
    assert [type(each) for each in said] == [Failed, Failed]


def test_every_output_says_why_it_fired(tmp_path: Path) -> None:
    config = step(
        dsl={"path": "a.star"}, trigger={**COUNT, "count": 2}, branches={"b": place("branch")}
    )
    script = (
        "def aggregate(IN, Env):\n"
        "    return struct(OUT=[1, 2], HEADERS=[{}, {'kafka': {'ce_id': 'mine'}}])\n"
    )
    settings = loaded(tmp_path, config, a=script)
    topics = OperatorTopics(output="output", late=None, dead_letter="deadletter")
    outcome = Outcome(bucket=0)
    said = Running(settings).at(0, event(id=1, time=5), event(id=2, time=7))
    Reporter(settings, topics, "query").report(said, outcome, BucketRows(), 0)
    one, two = Outcome.decode(outcome.encode()).outgoing
    why = {
        FIRED: b"count",
        WINDOW_START: b"5",
        WINDOW_END: b"7",
        WINDOW_EVENTS: b"2",
        REVISION: b"1",
    }
    assert dict(one.headers).items() >= why.items()
    assert dict(one.headers)[CONTENT_TYPE] == b"application/json"
    assert (one.topic, one.key, one.value, one.timestamp) == ("output", b"k", b"1", 7)
    assert dict(two.headers)[ID] == b"mine"


def test_a_record_that_goes_on_as_it_is_keeps_its_headers_and_says_why(tmp_path: Path) -> None:
    settings = loaded(tmp_path, step())
    topics = OperatorTopics(output="output", late=None, dead_letter="deadletter")
    outcome = Outcome(bucket=0)
    one = event(id=1, time=5, headers=[("a", b"1"), (FIRED, b"before")])
    Reporter(settings, topics, "query").report(
        Running(settings).at(0, one, one), outcome, BucketRows(), 0
    )
    found = Outcome.decode(outcome.encode()).outgoing[0]
    assert [name for name, _ in found.headers] == [
        "a", FIRED, WINDOW_START, WINDOW_END, WINDOW_EVENTS, REVISION,
    ]  # fmt: skip
    assert (found.value, found.timestamp) == (one.value, 5)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("OUT='x' * 20000000", "its answer has 200000"),
        ("OUT=[1] * 200000", "OUT has 200000 events, more than 100000"),
    ],
)
def test_a_huge_answer_is_an_error_of_its_events(tmp_path: Path, result: str, error: str) -> None:
    script = f"def aggregate(IN, Env):\n    return struct({result})\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [error in reason for reason in reasons(said)] == [True, True]


def test_a_pattern_that_was_changed_leaves_the_time_as_it_was(tmp_path: Path) -> None:
    trigger = {"type": "timeFromEvent", "path": "when.star", "timePattern": "HH:mm:ss"}
    config = step(trigger={**trigger, "maxEmptyIntervals": 2})
    when = "def time(IN, Env):\n    return '00:00:05'\n"
    before = running(tmp_path, config, when=when)
    before.at(0, event(id=1))
    config["trigger"] |= {"timePattern": "HH:mm"}
    after = running(tmp_path, config, when=when)
    after.state = decoded(after.operator, encoded(before.state))
    assert reasons(after.at(5_000)) == ["time"]
    assert after.deadline == 5_000 + 86_400_000
