"""List, show, requeue and drop the letters of all parts."""

from collections.abc import Iterable, Iterator

from dovecote.observe.dead.shapes import Failure, Fate, Letter, Page, Ref, Selection
from dovecote.observe.sources import WatchSettings


def letters(watch: WatchSettings, selection: Selection, limit: int = 50) -> Iterator[Letter | Failure]:
    """Yield at most `limit` letters, newest first, then the parts that could not be asked."""
    found = page(watch, selection, limit)
    yield from found.letters
    yield from found.failures


def page(
    watch: WatchSettings, selection: Selection, limit: int = 50, after: str | None = None
) -> Page:
    """
    Return at most `limit` letters, newest first; `after` is the `next` of the page before.

    Raises:
        BadSettings: a part is unknown, `where` is no expression, or `after` is from elsewhere.
    """
    raise NotImplementedError


def show(watch: WatchSettings, ref: Ref) -> Letter:
    """
    Return one letter whole.

    Raises:
        DovecoteError: its part cannot be asked, or has it no longer.
    """
    raise NotImplementedError


def requeue(
    watch: WatchSettings, what: Selection | Iterable[Letter | Ref], *, by: str
) -> Iterator[Fate | Failure]:
    """
    Have letters handled, delivered or published again; yield what became of each.

    `by` names the person. Everything that was yielded stays done, whatever comes after it.

    Raises:
        BadSettings: a part is unknown, or `where` is no expression; nothing was done.
    """
    raise NotImplementedError


def drop(
    watch: WatchSettings, what: Selection | Iterable[Letter | Ref], *, by: str
) -> Iterator[Fate | Failure]:
    """
    Give letters up; yield what became of each, as `requeue` does.
    """
    raise NotImplementedError
