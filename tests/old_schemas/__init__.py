"""
Schemas as earlier versions installed them.

The folders hold the numbered scripts of the outbox up to version 15, of the inbox up to version 4
and of push's version 1, as they were. Version N is what the first N of them make.
"""

from pathlib import Path

from outbox.schema.belongings import NOTHING_FOR_PUBLIC, Belongings
from outbox.schema.templates import fill

OUTBOX, INBOX, PUSH = 15, 4, 1
"""The last versions that are kept here."""

_LEDGER = """
CREATE SCHEMA {schema};
REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
CREATE TABLE {schema}.migrations (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""
_STEP = "INSERT INTO {schema}.migrations (version, name) VALUES ({version}, '{name}');"


def script(version: int, schema: str = "outbox", *, part: str = "outbox") -> str:
    """Return the SQL that installs `part`, such as the inbox, at an earlier version."""
    pieces = [fill(_LEDGER, schema)]
    texts = []
    for path in sorted((Path(__file__).parent / part).glob("*.sql"))[:version]:
        number, _, name = path.stem.partition("_")
        text = path.read_text()
        texts.append(text)
        pieces += [fill(text, schema), fill(_STEP, schema, version=str(int(number)), name=name)]
    pieces.append(Belongings.of("", texts).fill(NOTHING_FOR_PUBLIC, schema))
    return "\n".join(pieces)
