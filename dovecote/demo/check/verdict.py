"""The demo's final numbers, and whether all of them agree."""

from dataclasses import asdict, dataclass
from typing import NamedTuple

from dovecote.demo.check.aggregated import Aggregated
from dovecote.demo.check.deduplicated import Deduplicated
from dovecote.demo.check.published import Published


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One run of the demo."""

    committed: int
    """Outbox rows of committed transactions, from the service's own tables."""

    published: int
    """Records in the topic."""

    lost: int
    duplicated: int
    """Records beyond one per row."""

    out_of_order: int
    dedup_expected: int
    dedup_got: int
    dedup_wrong: int
    retries: int
    came_back: int
    """Records that were put back from the retry topic."""

    dead_letters: int
    doubled: int
    """Departures and arrivals that came to pairing and sessions a second time."""

    trips: int
    days: int
    aggregated_wrong: int
    kills: int
    seconds: float

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


class Line(NamedTuple):
    """One line of the demo's final table."""

    what: str
    number: int | float
    wanted: str
    """The required value; empty: any."""

    is_right: bool


def numbers(
    published: Published,
    deduplicated: Deduplicated,
    aggregated: Aggregated,
    *,
    kills: int,
    seconds: float,
) -> Numbers:
    """Collect the results of the comparisons."""
    return Numbers(
        committed=published.committed,
        published=published.published,
        lost=published.lost,
        duplicated=published.duplicated,
        out_of_order=published.out_of_order,
        dedup_expected=deduplicated.expected,
        dedup_got=deduplicated.got,
        dedup_wrong=deduplicated.wrong,
        retries=deduplicated.retries,
        came_back=deduplicated.came_back,
        dead_letters=deduplicated.dead_letters,
        doubled=aggregated.doubled,
        trips=aggregated.trips,
        days=aggregated.days,
        aggregated_wrong=aggregated.wrong,
        kills=kills,
        seconds=round(seconds, 1),
    )


def judge(found: Numbers, *, kills: int) -> list[Line]:
    """Return the numbers with their required values; `kills` is the requested number."""
    return [
        Line("committed", found.committed, "> 0", found.committed > 0),
        _equal("published", found.published, found.committed, "committed"),
        _equal("lost", found.lost, 0),
        _equal("duplicated", found.duplicated, 0),
        _equal("out_of_order", found.out_of_order, 0),
        Line("dedup_expected", found.dedup_expected, "> 0", found.dedup_expected > 0),
        _equal("dedup_got", found.dedup_got, found.dedup_expected, "dedup_expected"),
        _equal("dedup_wrong", found.dedup_wrong, 0),
        Line("retries", found.retries, "> 0", found.retries > 0),
        _equal("came_back", found.came_back, found.retries, "retries"),
        Line("dead_letters", found.dead_letters, "> 0", found.dead_letters > 0),
        _equal("doubled", found.doubled, 0),
        Line("trips", found.trips, "> 0", found.trips > 0),
        Line("days", found.days, "> 0", found.days > 0),
        _equal("aggregated_wrong", found.aggregated_wrong, 0),
        _equal("kills", found.kills, kills),
        Line("seconds", found.seconds, "", is_right=True),
    ]


def agrees(lines: list[Line]) -> bool:
    """Return whether every number has its required value."""
    return all(line.is_right for line in lines)


def _equal(what: str, number: int, wanted: int, name: str = "") -> Line:
    return Line(what, number, f"= {name or wanted}", number == wanted)
