"""Note which keys of a state have changed since it was last stored."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_jobs.operators.alarms import Ident


@dataclass(slots=True)
class Changes:
    """
    The keys of a state that may have changed, and those that are gone, since it was settled.

    Code that changes a key touches it first. Otherwise the store would keep an old form.
    """

    is_all: bool = True
    """Anything may have changed. It is so until the state is settled."""
    touched: dict[Ident, None] = field(default_factory=dict)
    """In the order of their first changes, so that new keys have the order of the state."""
    gone: dict[Ident, None] = field(default_factory=dict)
    """These went first: a key that came back is among the touched ones as well."""

    def touch(self, idents: Iterable[Ident]) -> None:
        """Note that these keys may change."""
        if not self.is_all:
            self.touched.update(dict.fromkeys(idents))

    def forget(self, ident: Ident) -> None:
        """Note that a key goes."""
        self.touched.pop(ident, None)
        if not self.is_all:
            self.gone[ident] = None

    def settle(self, *, is_all: bool) -> None:
        """Begin anew; `is_all`: the store will get the whole state the next time anyway."""
        self.is_all = is_all
        self.touched, self.gone = {}, {}


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes in a state since it was settled."""

    data: bytes
    changed: int
    """How many keys it has."""
