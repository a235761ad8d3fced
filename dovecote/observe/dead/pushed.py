"""The letters of push's subscriptions, by way of its API."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

from dovecote.observe.dead.order import Before, numbers_of
from dovecote.observe.dead.part import Picked, Verb
from dovecote.observe.dead.shapes import Failure, Fate, Letter, Looked, Selection
from dovecote.observe.rules.counted import counted
from dovecote.observe.sources import PushSource
from dovecote.push.api import answers
from dovecote.push.client import Api
from outbox.errors import BadSettings, DovecoteError

M = TypeVar("M", bound=BaseModel)

_LAST = datetime.max.replace(tzinfo=UTC)
_TOGETHER = 1_000
_PAGE = 5_000
MOST_ASKED = 200
"""So many subscriptions are asked for letters, whatever they have counted."""
_GONE = "it is not there any more: somebody requeued or dropped it, or the topic let it go"


class _Counts(BaseModel):
    dead: int


class _Subscription(BaseModel):
    """The fields of a subscription that are needed."""

    id: str
    counts: _Counts


@dataclass(frozen=True, slots=True)
class PushPart:
    """The subscriptions of one push."""

    name: str
    source: PushSource

    def newest(
        self, selection: Selection, most: int, before: Before | None
    ) -> Iterator[Letter | Looked | Failure]:
        """Yield the newest letters of its subscriptions, and what was looked at."""
        asked, others = self._subscriptions(selection)
        for id_ in asked:
            part = f"{self.name}/{id_}"
            try:
                found = self._newest(id_, selection, most, before)
            except DovecoteError as error:
                yield Failure(part, str(error))
                continue
            for letter in found.letters:
                yield self._letter(part, letter)
            rest = "" if found.whole else "; older ones were not looked at"
            said = f"{counted(found.looked, 'record')} of {part}{rest}"
            yield Looked(part, found.looked, found.whole, said)
        if others:
            said = (
                f"{others:,} subscriptions of {self.name} that have counted no dead letter were "
                f"not asked: name one by --part {self.name}/SUBSCRIPTION"
            )
            yield Looked(self.name, 0, whole=False, said=said)

    def all(self, selection: Selection) -> Iterator[Picked]:
        """Yield all letters that are meant, in no order."""
        for id_ in self._subscriptions(selection)[0]:
            part, before = f"{self.name}/{id_}", None
            while True:
                found = self._newest(id_, selection, _PAGE, before)
                for letter in found.letters:
                    yield Picked(part, letter.place, letter.id, letter.source)
                if not found.whole:
                    msg = (
                        f"{part} has more records than are looked at together: name a shorter "
                        "time by --since and --until"
                    )
                    raise DovecoteError(msg)
                if len(found.letters) < _PAGE:
                    break
                last = found.letters[-1]
                before = Before(last.died_at, part, last.place)

    def show(self, part: str, place: str) -> Letter:
        """Return one letter whole."""
        answer = self._ask("GET", f"{_path(self._id(part))}/{quote(place, safe='')}")
        found = _read(answers.WholeLetter, answer, self.source.url)
        letter = self._letter(part, found)
        # The API has text where a record has bytes, and cuts what is long.
        return replace(
            letter,
            value=None if found.value is None else found.value.encode(),
            headers=[
                (name, None if text is None else text.encode()) for name, text in found.headers
            ],
        )

    def resolve(self, verb: Verb, places: Sequence[Picked], by: str) -> Iterator[Fate]:  # noqa: ARG002  # the API notes its token
        """Deliver letters again or drop them, and yield what became of each."""
        subscriptions: dict[str, list[Picked]] = {}
        for each in places:
            subscriptions.setdefault(each.part, []).append(each)
        for part, chosen in subscriptions.items():
            order = sorted(chosen, key=lambda each: numbers_of(each.place) or (-1, -1))
            for start in range(0, len(order), _TOGETHER):
                yield from self._resolved(verb, part, order[start : start + _TOGETHER])

    def _resolved(self, verb: Verb, part: str, some: Sequence[Picked]) -> Iterator[Fate]:
        known = {each.place: each for each in some}
        body = {"places": list(known)}
        answer = self._ask("POST", f"{_path(self._id(part))}/{verb}", body)
        if not isinstance(answer, list):
            raise DovecoteError(_garbage(self.source.url))
        for each in answer:
            done = _read(answers.Resolved, each, self.source.url)
            known.pop(done.place, None)
            what = "left" if done.left is not None else _PAST[verb]
            yield Fate(part, done.place, done.id, what, done.left or "")  # type: ignore[arg-type]  # one of these words
        for chosen in known.values():
            yield Fate(*chosen[:3], "left", _GONE)

    def _subscriptions(self, selection: Selection) -> tuple[list[str], int]:
        """Return the subscriptions to ask, and how many more there are."""
        answer = self._ask("GET", "/subscriptions")
        if not isinstance(answer, list):
            raise DovecoteError(_garbage(self.source.url))
        found = [_read(_Subscription, each, self.source.url) for each in answer]
        named = [each for each in found if is_meant(f"{self.name}/{each.id}", selection.parts)]
        if selection.parts and not named and not is_meant(self.name, selection.parts):
            msg = f"{self.name} has no subscription like {', '.join(map(repr, selection.parts))}"
            raise DovecoteError(msg)
        if len(named) <= MOST_ASKED:
            return [each.id for each in named], 0
        counted = [each.id for each in named if each.counts.dead]
        return counted, len(named) - len(counted)

    def _newest(
        self, id_: str, selection: Selection, most: int, before: Before | None
    ) -> answers.Sought:
        times = {"since": selection.since, "until": selection.until}
        asked: dict[str, Any] = {
            "limit": most,
            "ids": list(selection.ids),
            # Only a key that is text can be asked for; the answer is looked at once more.
            "key": None if selection.key is None else selection.key.decode(errors="replace"),
            "reason": selection.reason,
            "topic": selection.topic,
            "type": selection.type,
            **{name: None if at is None else at.isoformat() for name, at in times.items()},
        }
        part = f"{self.name}/{id_}"
        if before is not None:
            at, numbers = before.numbers(part)
            asked["before"] = at.isoformat()
            if part == before.part:
                asked["place"] = before.place
            elif numbers > (0, 0) and at.replace(tzinfo=UTC) < _LAST:
                # The letters of the very same time are still to come.
                asked["before"] = (at + timedelta(microseconds=1)).isoformat()
        asked = {name: value for name, value in asked.items() if value not in (None, [])}
        path = f"{_path(id_)}-newest"
        if selection.where is not None:
            path, asked["where"] = f"{_path(id_)}-search", selection.where
        answer = self._ask("GET", f"{path}?{urlencode(asked, doseq=True)}")
        return _read(answers.Sought, answer, self.source.url)

    def _letter(self, part: str, found: answers.DeadLetter) -> Letter:
        return Letter(
            part=part,
            place=found.place,
            topic=found.origin.rsplit("/", 2)[0],
            key=None if found.key is None else found.key.encode(),
            id=found.id,
            source=found.source,
            type=found.type,
            at=found.died_at,
            reason=found.reason,
            attempts=found.attempts,
            value=None,
            size=found.size,
            headers=(),
        )

    def _id(self, part: str) -> str:
        return part.removeprefix(f"{self.name}/")

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  # JSON
        if not self.source.url:
            msg = (
                f"{self.name} has no `url` of its API, which alone knows its dead letters: add it "
                "to the settings"
            )
            raise BadSettings(msg)
        mend = f"mend `url` in [sources.{self.name.replace('/', '.')}]"
        return Api(self.source.url, self.source.token or None, mend)(method, path, body)


_PAST: Mapping[Verb, str] = {"requeue": "requeued", "drop": "dropped"}


def is_meant(part: str, named: Sequence[str]) -> bool:
    """Return whether a part is one of those that are named, or of one; none named: any is."""
    return not named or any(part == each or part.startswith(f"{each}/") for each in named)


def _path(id_: str) -> str:
    return f"/subscriptions/{quote(id_, safe='')}/dead"


def _read(model: type[M], answer: object, url: str | None) -> M:
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise DovecoteError(_garbage(url)) from error


def _garbage(url: str | None) -> str:
    return f"{url} answers, but not as the API of `dovecote push serve` does: is it this version?"
