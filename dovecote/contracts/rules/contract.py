"""One contract: what is promised of the events of a type, and the file with all of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from dovecote.contracts.rules.form import misplaced
from outbox.errors import BadSettings

FORMAT = 1
"""The version of the file's own form."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema: TypeAlias = Mapping[str, Any] | bool

_MOST_SAID = 200
_TEXTS = ("key", "subject", "source", "dataschema", "class")


@dataclass(frozen=True, slots=True)
class Contract:
    """The promise about events of one type and version."""

    topic: str
    type: str
    version: int | None = None
    key: str | None = None
    """The field with the key, or `function NAME`."""
    subject: str | None = None
    source: str | None = None
    dataschema: str | None = None
    of: str | None = None
    """The class, with its module."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """The JSON Schema of values."""

    @property
    def name(self) -> str:
        """`orders/OrderPlaced v2`."""
        return f"{self.topic}/{self.type}" + _version(self.version)

    def described(self) -> dict[str, Any]:
        """Return all but the schema, as the file has it."""
        return {
            "topic": self.topic,
            "type": self.type,
            "version": self.version,
            "key": self.key,
            "subject": self.subject,
            "source": self.source,
            "dataschema": self.dataschema,
            "class": self.of,
        }


def place(contract: Contract) -> tuple[str, str, int]:
    """Return what contracts are sorted by: topic, type, version."""
    return contract.topic, contract.type, -1 if contract.version is None else contract.version


def written(contracts: Iterable[Contract]) -> str:
    """
    Return the text of a file of contracts, the same for the same contracts in any order.

    Raises:
        BadSettings: two classes have one topic, type and version.
    """
    found = sorted(contracts, key=place)
    for one, other in pairwise(found):
        if place(one) == place(other):
            msg = f"{one.of} and {other.of} are both {one.name}: give each a `version` of its own"
            raise BadSettings(msg)
    entries = [{**each.described(), "schema": each.schema} for each in found]
    whole = {"dovecote": FORMAT, "contracts": entries}
    return json.dumps(whole, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


def parsed(text: str | bytes, where: str) -> list[Contract]:
    """
    Return the contracts of a file.

    Raises:
        BadSettings: it is none; the message says `where` it came from.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where} is no JSON: {error}; write it with `dovecote contracts export`"
        raise BadSettings(msg) from error
    if not isinstance(whole, dict) or not isinstance(whole.get("contracts"), list):
        msg = f"{where} is no file of contracts; write it with `dovecote contracts export`"
        raise BadSettings(msg)
    if whole.get("dovecote") != FORMAT:
        msg = (
            f"{where} has the form {whole.get('dovecote')!r}, and this version knows {FORMAT}: "
            "write it again with `dovecote contracts export`"
        )
        raise BadSettings(msg)
    found = [
        entry(each, f"{where}, contract {number}")
        for number, each in enumerate(whole["contracts"], 1)
    ]
    seen: set[tuple[str, str, int]] = set()
    for each in found:
        if place(each) in seen:
            msg = f"{where} has {each.name} twice; write it with `dovecote contracts export`"
            raise BadSettings(msg)
        seen.add(place(each))
    return found


def entry(given: object, where: str) -> Contract:
    """
    Return one contract as a file or a registry has it.

    Raises:
        BadSettings: it is none.
    """
    if not isinstance(given, dict):
        msg = f"{where} is no object"
        raise BadSettings(msg)
    for name in ("topic", "type"):
        if not isinstance(given.get(name), str) or not given[name]:
            msg = f"{where} has no {name}"
            raise BadSettings(msg)
    for name in _TEXTS:
        if not isinstance(given.get(name), str | None):
            msg = f"{where}: {name} is no text"
            raise BadSettings(msg)
    version = given.get("version")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        msg = f"{where}: version {version!r} is no number"
        raise BadSettings(msg)
    if not isinstance(given.get("schema"), dict):
        msg = f"{where} has no schema"
        raise BadSettings(msg)
    if (part := misplaced(given["schema"])) is not None:
        msg = f"{where}: {part[:_MOST_SAID]} is not of the form of JSON Schema 2020-12"
        raise BadSettings(msg)
    return Contract(
        topic=given["topic"],
        type=given["type"],
        version=version,
        key=given.get("key"),
        subject=given.get("subject"),
        source=given.get("source"),
        dataschema=given.get("dataschema"),
        of=given.get("class"),
        schema=given["schema"],
    )


def _version(version: int | None) -> str:
    return "" if version is None else f" v{version}"
