"""Every field of the operator's manual; tests are named after its sections."""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest

from outbox.errors import BadSettings
from spark_jobs.operators.step import Failed, Made, Skipped
from tests.support.aggregated import ORDER, said_of
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    DAILY,
    SUMS,
    event,
    loaded,
    place,
    reasons,
    running,
    step,
    values,
)

OTHER = {**ORDER, "name": "Other", "fields": [{"name": "id", "type": "string"}]}


def test_a1_name_is_required_and_kept(tmp_path: Path) -> None:
    assert loaded(tmp_path, step(name="orders")).step.name == "orders"
    config = step()
    del config["name"]
    with pytest.raises(BadSettings, match=r"\n  name: is missing"):
        loaded(tmp_path, config)


def test_a2_environment_variables_are_loaded_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "vars.json").write_text('{"currency": "EUR"}')
    located = {"source": "file", "path": "vars.json"}
    found = said_of(tmp_path, "Env.loadedVariables['currency']", environmentVariables=located)
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
    assert said_of(tmp_path, "len(IN)") == 2
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
