"""Let the contenders of one kind of work take turns, and print what each did."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from benchmarks import harness
from benchmarks.beside.figures import FAILED, MEASURED, MISSING, Figures
from benchmarks.beside.tools import PeerFailed, PeerMissing

_Place = TypeVar("_Place")


class Wanted(NamedTuple):
    """How much is measured."""

    rounds: int = 3
    records: int | None = None
    """Records that count in each measurement; None: as many as each kind of work has."""

    rates: Sequence[int] = ()
    """Events a second, of the relay's latency."""

    def of(self, usual: int) -> int:
        """Return the number of records, `usual` if nothing else is wanted."""
        return usual if self.records is None else self.records


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Contender(Generic[_Place]):
    """One program that does the work."""

    name: str
    promise: str
    """The order and the delivery that it promises, in a few words."""

    measure: Callable[[_Place], Figures]
    prepare: Callable[[], object] = _nothing
    """Fetches and builds it; raises `PeerMissing` or `PeerFailed`."""

    ours: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    """More fields of its lines."""


class Turns(Generic[_Place]):
    """The contenders that are left: one that cannot be had or has failed is left out."""

    def __init__(self, work: str, contenders: Sequence[Contender[_Place]]) -> None:
        self._work = work
        self._left: list[Contender[_Place]] = []
        self.failed = False
        """Whether one of them has failed so far."""

        for each in contenders:
            try:
                each.prepare()
            except PeerMissing as error:
                harness.emit(MISSING, work=work, name=each.name, why=str(error))
            except PeerFailed as error:
                self._fail(each, error)
            else:
                self._left.append(each)

    @property
    def names(self) -> frozenset[str]:
        """The names of those that are left."""
        return frozenset(each.name for each in self._left)

    def take(self, place: _Place, turn: int) -> None:
        """Measure each of them once."""
        for each in list(self._left):
            try:
                figures = each.measure(place)
            except PeerFailed as error:
                self._left.remove(each)
                self._fail(each, error)
            else:
                harness.emit(
                    MEASURED,
                    work=self._work,
                    name=each.name,
                    ours=each.ours,
                    promise=each.promise,
                    round=turn,
                    **each.settings,
                    **figures.fields(),
                )

    def _fail(self, contender: Contender[_Place], error: PeerFailed) -> None:
        self.failed = True
        harness.emit(FAILED, work=self._work, name=contender.name, why=str(error))
