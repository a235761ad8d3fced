"""Say in plain words what pydantic finds wrong with a value."""

import re
from collections.abc import Mapping
from types import MappingProxyType

_A_LIST = 'must be a list, such as ["a", "b"]'
_WHOLE, _NUMBER, _FLAG = "must be a whole number", "must be a number", "must be true or false"
_TIME = "must be a time, such as 2026-02-01T09:30:00Z"
_OBJECT = "must be an object"
_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
    **dict.fromkeys(("tuple_type", "list_type", "sequence_str", "is_instance_of"), _A_LIST),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), _WHOLE),
    "int_parsing_size": "is too large a number",
    **dict.fromkeys(("float_parsing", "float_type"), _NUMBER),
    **dict.fromkeys(("bool_parsing", "bool_type"), _FLAG),
    "string_type": "must be text",
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _TIME),
    "timezone_aware": f"{_TIME}: it lacks the zone",
    "path_type": "must be the path of a file",
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), _OBJECT),
    **dict.fromkeys(("too_short", "string_too_short"), "must not be empty"),
}
_NONE: Mapping[str, str] = MappingProxyType({})


def words(kind: str, message: str, own: Mapping[str, str] = _NONE) -> str:
    """
    Return what is wrong; `kind` and `message` are the `type` and the `msg` of pydantic's error.

    The caller's `own` words for some kinds come first.
    """
    return own.get(kind) or _WORDS.get(kind) or _said(message)


def _said(message: str) -> str:
    """Return what pydantic says, as messages of ours say it."""
    said = message.removeprefix("Value error, ").replace(" after validation", "")
    return _SHOULD.sub(lambda found: _MUST[found[1]], said, count=1)


_MUST = {"be": "must be", "have": "must have", "match": "must match"}
_SHOULD = re.compile(r"^[A-Z]\w* should (be|have|match)\b")
