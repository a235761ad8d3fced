"""Texts of SQL with names in them: no name, however it is written, ends what it stands in."""

import re

from psycopg import sql

from outbox.errors import BadSettings

_TAG = re.compile(r"\$((?:[A-Za-z_]\w*)?)\$")
_PLACE = re.compile(r"\{(\w+)\}")

# NAMEDATALEN, less the byte that ends it: what is longer is cut, and two names may be one then.
_LONGEST_NAME = 63


def fill(text: str, schema: str, **others: str) -> str:
    """
    Return `text` with the quoted name of the schema in the place of `{schema}`, and `others`.

    No name ends a text in dollar quotes that it stands in: the tags are such as are in none.
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
    """Return `text` in dollar quotes, by this tag or by one that it does not contain either."""
    while f"${tag}$" in text:
        tag += "_"
    return f"${tag}${text}${tag}$"


def require_name(schema: str) -> None:
    """
    Check that a schema can have this name.

    Raises:
        BadSettings: it cannot.
    """
    # A `%` would be a placeholder in every statement with parameters.
    if not schema or "\0" in schema or "%" in schema:
        msg = f"{schema!r} is not a schema name that can be used"
        raise BadSettings(msg)
    if len(schema.encode()) > _LONGEST_NAME:
        msg = f"schema name {schema!r} is longer than Postgres keeps: {_LONGEST_NAME} bytes"
        raise BadSettings(msg)
