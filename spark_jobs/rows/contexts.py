"""The spans that some records of a batch come from, for the links of the batch's own."""

from collections.abc import Callable, Iterable, Sequence

from outbox.envelope import Pair
from outbox.tracing.headers import Parent, parent
from spark_jobs.rows.records import Records

MOST = 16
"""The most that a task reports."""
_MOST_LOOKED_AT = 200


def contexts(rows: int, headers: Callable[[int], Sequence[Pair]], most: int = MOST) -> list[str]:
    """
    Return the trace contexts of some of the first rows, one for each trace.

    Only sampled ones count: the others lead to no span.
    """
    found: dict[int, Parent] = {}
    for row in range(min(rows, _MOST_LOOKED_AT)):
        origin = parent(headers(row))
        if origin is not None and origin.sampled:
            found.setdefault(origin.trace, origin)
            if len(found) == most:
                break
    return [text(each) for each in found.values()]


def headers_in(rows: Records) -> Callable[[int], Sequence[Pair]]:
    """Return what finds the headers of a row."""
    return lambda row: rows.record(row).headers


def text(origin: Parent) -> str:
    """Return a context as `traceparent` has it."""
    return f"00-{origin.trace:032x}-{origin.span:016x}-{origin.flags:02x}"


def joined(many: Iterable[Sequence[str]], most: int = MOST) -> list[str]:
    """Return the first contexts of several buckets."""
    return list(dict.fromkeys(each for some in many for each in some))[:most]
