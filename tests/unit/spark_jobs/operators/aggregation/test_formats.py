"""Formats of input and output, and their errors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.config import Csv, Xml
from spark_jobs.operators.aggregation.formats.avro import AvroCodec
from spark_jobs.operators.aggregation.formats.formats import codec
from spark_jobs.operators.aggregation.formats.xml import from_xml, to_xml
from spark_jobs.operators.aggregation.settings import Text
from spark_jobs.operators.step import Made
from tests.unit.spark_jobs.operators.aggregation.steps import COUNT, event, running, step

LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>
<lolz>&c;</lolz>"""
FETCHES = b"""<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/hostname">]><r>&x;</r>"""


@pytest.mark.parametrize("data", [LAUGHS, FETCHES, b"<!DOCTYPE r><r/>"])
def test_xml_with_a_document_type_is_refused(data: bytes) -> None:
    for each in (data, data.decode().replace("?xml version", "?xml  version").encode("utf-16")):
        with pytest.raises(ValueError, match="document type"):
            from_xml(each)


@pytest.mark.parametrize("data", [b"", b"<a>", b"<a></b>", b"<a>&x;</a>", b"\0", b"<a/><b/>"])
def test_what_is_no_xml_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_xml(data)


def test_xml_that_nests_too_deeply_is_refused() -> None:
    with pytest.raises(ValueError, match="depth"):
        from_xml(b"<a>" * 10_000 + b"</a>" * 10_000)


def test_xml_becomes_json_and_comes_back() -> None:
    data = b'<o id="7"><!-- no --><line>a</line><line x="1">b</line><e/>tail</o>'
    event = {"o": {"@id": "7", "line": ["a", {"@x": "1", "#text": "b"}], "e": "", "#text": "tail"}}
    assert from_xml(data) == event
    assert from_xml(to_xml(event)) == event
    assert to_xml({"a": {"b": [True, None, 1.5]}}).endswith(b"<a><b>true</b><b></b><b>1.5</b></a>")


def test_a_document_type_in_a_text_is_a_text() -> None:
    data = b"<!-- <!DOCTYPE x> --><o><![CDATA[<!DOCTYPE x>]]></o>"
    for each in (data, b'<?xml version="1.0"?>' + data, data.decode().encode("utf-16")):
        assert from_xml(each) == {"o": "<!DOCTYPE x>"}


SAME = "def aggregate(IN, Env):\n    return struct(OUT=IN)\n"


@pytest.mark.parametrize(
    "inner",
    ["<z>1</z><a>2</a>", "<z>1</z><a>2</a><z>3</z>", "<z><y/><b/><y/></z><c/><z/><c/><a/>"],
)
def test_the_order_of_children_is_kept_through_a_script(tmp_path: Path, inner: str) -> None:
    both = {"input": "xml", "output": "xml"}
    config = step(trigger={**COUNT, "count": 1}, format=both, dsl={"path": "a.star"})
    (made,) = running(tmp_path, config, a=SAME).at(0, event(f"<o>{inner}</o>".encode()))
    assert isinstance(made, Made)
    found = (made.value or b"").decode().partition("<o>")[2].removesuffix("</o>")
    assert re.sub(r"<(\w)></\1>", r"<\1/>", found) == inner


def test_what_a_script_adds_comes_after_the_order_that_came() -> None:
    changed = {"o": {"a": ["1", "2", "3"], "c": "4", "#order": ["a", "b", "a"]}}
    assert to_xml(changed).endswith(b"<o><a>1</a><a>2</a><a>3</a><c>4</c></o>")
    with pytest.raises(ValueError, match="#order is the list"):
        to_xml({"o": {"a": "1", "#order": 5}})


def test_one_child_and_several_are_lists_where_a_setting_says_so() -> None:
    xml = codec(Xml.model_validate({"type": "xml", "lists": ["order.line", "order.line.tag"]}), [])
    assert xml.decode(b"<order><line>1</line><no/></order>", None) == {
        "order": {"line": ["1"], "no": ""}
    }
    several = b"<order><line><tag/></line><line/></order>"
    assert xml.decode(several, None) == {"order": {"line": [{"tag": [""]}, ""]}}


def test_prefixes_stand_for_namespaces_whatever_a_document_calls_them() -> None:
    spaces = {"s": "urn:s", "": "urn:d"}
    xml = codec(Xml.model_validate({"type": "xml", "namespaces": spaces}), [])
    data = b'<q:e xmlns:q="urn:s" xmlns="urn:d" xmlns:u="urn:u"><l q:x="1" y="2"/><u:k/></q:e>'
    found = {"s:e": {"l": {"@s:x": "1", "@y": "2"}, "{urn:u}k": ""}}
    assert xml.decode(data, None) == found
    assert b'<s:e xmlns:s="urn:s" xmlns="urn:d"><l s:x="1" y="2"/>' in xml.encode(found, None)
    assert xml.decode(xml.encode(found, None), None) == found
    for wrong in ({"a b": "x"}, {"a": "x", "b": "x"}):
        with pytest.raises(ValueError, match="prefix"):
            Xml.model_validate({"type": "xml", "namespaces": wrong})


@pytest.mark.parametrize("event", [[], {}, {"a": 1, "b": 2}, {"a": [1]}, {"a b": 1}, {"a": "\0"}])
def test_what_xml_cannot_hold_is_refused(event: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        to_xml(event)


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=20)


@given(st.dictionaries(st.sampled_from("abc"), _TEXT))
def test_csv_comes_back_as_it_went(event: dict[str, str]) -> None:
    lines = codec(Csv.model_validate({"type": "csv", "fieldNames": ["a", "b", "c"]}), [])
    data = lines.encode(event, None)
    if data.strip():
        assert lines.decode(data, None) == {name: event.get(name, "") for name in "abc"}


@pytest.mark.parametrize("data", [b"1,2", b"1,2,3,4", b"1,2,3\n4,5,6", b'"1,2,3', b"", b"\xff,,"])
def test_csv_that_is_not_one_line_of_its_columns_is_refused(data: bytes) -> None:
    lines = codec(Csv.model_validate({"type": "csv", "fieldNames": ["a", "b", "c"]}), [])
    with pytest.raises(Exception, match=r"\w"):
        lines.decode(data, None)


def test_a_csv_column_may_be_as_long_as_a_record() -> None:
    lines = codec(Csv.model_validate({"type": "csv", "fieldNames": ["a", "b"]}), [])
    event = {"a": "x" * 900_000, "b": "y"}
    assert lines.decode(lines.encode(event, None), None) == event


def test_logical_types_are_read_as_what_they_are_made_of() -> None:
    schema = {
        "type": "record",
        "name": "T",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "raw", "type": ["null", "bytes"]},
        ],
    }
    avro = AvroCodec([("t.avsc", json.dumps(schema), False)])
    assert avro.decode(b"\x04\x02\x04\xe9a", None) == {"at": 2, "raw": "éa"}
    with pytest.raises(ValueError, match="can be read, but not written"):
        avro.require_writable()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ('{"type": "recrd"}', 'there is no type {"type": "recrd"}'),
        ('{"type": "array"}', "'items' is missing"),
        ("5", "that is an object, a list or a type's name"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, why: str) -> None:
    from pydantic import TypeAdapter

    from spark_jobs.operators.aggregation.config import Format

    avro: Any = TypeAdapter(Format).validate_python({"type": "avro", "schema": [{"path": "a"}]})
    with pytest.raises(BadSettings, match=f"a.avsc is not an Avro schema: {re.escape(why)}"):
        codec(avro, [Text(path="a.avsc", text=text)])


LINKED = {
    "type": "record",
    "name": "Link",
    "namespace": "n",
    "fields": [{"name": "next", "type": ["null", "n.Link"]}],
}


@pytest.mark.parametrize("levels", [5_000, 1_000_000])
def test_avro_that_nests_too_deeply_is_refused(levels: int) -> None:
    avro = AvroCodec([("link.avsc", json.dumps(LINKED), False)])
    assert avro.decode(b"\x02\x02\x00", None) == {"next": {"next": {"next": None}}}
    with pytest.raises(ValueError, match="nests too deeply"):
        avro.decode(b"\x02" * levels + b"\x00", None)


NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "a", "type": "null"}]}


@pytest.mark.parametrize(
    "items", ["null", NOTHING, {"type": "fixed", "name": "F", "size": 0}, {"type": "null"}]
)
def test_avro_whose_records_nothing_bounds_is_refused(items: object) -> None:
    fields = [{"name": "all", "type": ["null", {"type": "array", "items": items}]}]
    schema = {"type": "record", "name": "R", "fields": fields}
    with pytest.raises(ValueError, match="takes no bytes"):
        AvroCodec([("r.avsc", json.dumps(schema), False)]).require_readable()


@pytest.mark.parametrize(
    "items", ["int", ["null"], "string", {"type": "array", "items": "int"}, LINKED]
)
def test_avro_of_other_arrays_is_read(items: object) -> None:
    text = json.dumps({"type": "array", "items": items})
    AvroCodec([("r.avsc", text, False)]).require_readable()


def _registered(number: int | None) -> AvroCodec:
    fields = [{"name": "a", "type": "int"}, {"name": "t", "type": "string"}]
    texts = [json.dumps({"type": "record", "name": n, "fields": fields}) for n in "RS"]
    ids = [] if number is None else [number, number + 1]
    return AvroCodec([("r.avsc", texts[0], False), ("s.avsc", texts[1], False)], ids)


FRAMED = b"\0\0\0\0\x07\x02\x04hi"


def test_the_frame_of_a_schema_registry_is_read_and_written_by_the_ids_of_schemas() -> None:
    assert _registered(7).decode(FRAMED, None) == {"a": 1, "t": "hi"}
    assert _registered(6).decode(FRAMED, None) == {"a": 1, "t": "hi"}
    assert _registered(7).encode({"a": 1, "t": "hi"}, None) == FRAMED
    assert _registered(6).encode({"a": 1, "t": "hi"}, "S") == FRAMED


def test_a_frame_that_is_not_expected_says_what_helps() -> None:
    with pytest.raises(ValueError, match="if 7 is the id of its schema there, set `id` beside"):
        _registered(None).decode(FRAMED, None)
    with pytest.raises(ValueError, match="the id 7, and those here have 8, 9: add it by its id"):
        _registered(8).decode(FRAMED, None)
    for data in (b"", FRAMED[5:], b"\0\0"):
        with pytest.raises(ValueError, match="does not begin with byte 0"):
            _registered(7).decode(data, None)
