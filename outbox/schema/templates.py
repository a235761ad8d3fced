"""Fill names into SQL texts safely: no name, however it is written, can end its literal."""

import re
from collections.abc import Iterable

from psycopg import sql

from outbox.errors import BadSettings
from outbox.postgres.ours import ADAPTERS

_TAG = re.compile(r"\$((?:[A-Za-z_]\w*)?)\$")
_PLACE = re.compile(r"\{(\w+)\}")

# NAMEDATALEN, less the final byte: Postgres cuts longer names, and could take two for one.
_LONGEST_NAME = 63


def fill(text: str, schema: str, **others: str) -> str:
    """
    Return `text` with the schema's quoted name in place of `{schema}`, and `others` in theirs.

    No name can end a dollar-quoted text around it: the tags do not occur in any name.
    """
    require_name(schema)
    given = {"schema": sql.Identifier(schema).as_string(), **others}
    suffix, number = "", 0
    while any(re.search(rf"\$\w*{suffix}\$", each) for each in given.values()):
        suffix, number = f"_{number}", number + 1
    if suffix:
        text = _TAG.sub(rf"$\g<1>{suffix}$", text)
    return _PLACE.sub(lambda it: given.get(it[1], it[0]), text)


def quoted(text: str, tag: str) -> str:
    """
    Return `text` in dollar quotes, with this tag or a longer one that the text does not contain.
    """
    while f"${tag}$" in text:
        tag += "_"
    return f"${tag}${text}${tag}$"


def literal(text: str) -> str:
    """Return a text as SQL, however the application has psycopg write texts."""
    return sql.Literal(text).as_string(ADAPTERS)


def array(texts: Iterable[str]) -> str:
    """Return texts as an array of SQL."""
    return f"ARRAY[{', '.join(map(literal, texts))}]::text[]"


def require_name(schema: str) -> None:
    """
    Check that a schema can have this name.

    Raises:
        BadSettings: it cannot.
    """
    # A `%` would be a placeholder in every statement with parameters.
    # A byte of a command line that is no UTF-8 comes as half of a surrogate pair.
    if not schema or re.search("[\0%\ud800-\udfff]", schema):
        msg = f"{schema!r} is not a schema name that can be used"
        raise BadSettings(msg)
    if len(schema.encode()) > _LONGEST_NAME:
        msg = f"schema name {schema!r} is longer than Postgres keeps: {_LONGEST_NAME} bytes"
        raise BadSettings(msg)
