"""Topic patterns, in the subset of syntax that Kafka's client, its broker and we read alike."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

# Kafka's client uses POSIX expressions, in which `\d` is the letter d and `(?…` is not valid.
_FOREIGN = re.compile(r"\\[A-Za-z0-9<>'`]|\(\?")


@lru_cache(maxsize=256)
def whole(pattern: str) -> Callable[[str], bool]:
    """
    Return a function that tests whether a pattern matches a topic's whole name.

    It uses an engine with linear run time. Python's own engine can take years for a short pattern,
    and blocks the whole process meanwhile.

    Raises:
        ValueError: it is not a pattern, or not one that all read alike.
    """
    if (found := _FOREIGN.search(pattern)) is not None:
        msg = f"{found[0]!r} is not known to Kafka: write sets, such as [0-9], and plain groups"
        raise ValueError(msg)
    try:
        TypeAdapter(Annotated[str, Field(pattern=pattern)])
        adapter = TypeAdapter(Annotated[str, Field(pattern=f"^({pattern})$")])
    except SchemaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(lines[-1].removeprefix("error: ")) from None

    def matches(name: str) -> bool:
        try:
            adapter.validate_python(name)
        except ValidationError:
            return False
        return True

    return matches
