"""The duties that each kind of part has for its letters."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from dovecote.observe.dead.order import Before
from dovecote.observe.dead.shapes import Failure, Fate, Letter, Looked, Selection

Verb: TypeAlias = Literal["requeue", "drop"]


class Picked(NamedTuple):
    """Names a letter that is to be requeued or dropped."""

    part: str
    place: str
    id: str
    source: str


class Part(Protocol):
    """One entry of the settings file, and its letters."""

    @property
    def name(self) -> str:
        """Its name, or what its letters' parts begin with."""

    def newest(
        self, selection: Selection, most: int, before: Before | None
    ) -> Iterator[Letter | Looked | Failure]:
        """Yield its newest letters, and what was looked at; raises DovecoteError."""

    def all(self, selection: Selection) -> Iterator[Picked]:
        """Yield all letters that are meant, in no order; raises DovecoteError."""

    def show(self, part: str, place: str) -> Letter:
        """Return one letter whole; raises DovecoteError."""

    def resolve(self, verb: Verb, places: Sequence[Picked], by: str) -> Iterator[Fate]:
        """Requeue or drop letters, and yield what became of each; raises DovecoteError."""
