"""The dead letters and parked events of all parts, in the form of the API."""

from collections.abc import Mapping, Sequence
from typing import Any

from dovecote.console.asked import Named, Verb, Wanted
from dovecote.observe.dead.letters import drop, page, requeue
from dovecote.observe.dead.shapes import Failure, Fate, Letter, Ref, Selection
from dovecote.observe.sources import WatchSettings

_MOST_VALUE = 4_000


class DeadLetters:
    """All of a settings file; each call asks the parts anew."""

    def __init__(self, watch: WatchSettings) -> None:
        self._watch = watch

    def page(self, wanted: Wanted) -> Mapping[str, Any]:
        """
        Return letters, newest first.

        Raises:
            BadSettings: the part is unknown, or `after` is from elsewhere.
        """
        selection = Selection(
            parts=() if wanted.part is None else (wanted.part,),
            ids=() if wanted.id is None else (wanted.id,),
            topic=wanted.topic,
            key=None if wanted.key is None else wanted.key.encode(),
            type=wanted.type,
            reason=wanted.reason,
            since=wanted.since,
            until=wanted.until,
        )
        found = page(self._watch, selection, wanted.limit, wanted.after)
        return {
            "letters": [_letter(each) for each in found.letters],
            "next": found.next,
            "failures": [each._asdict() for each in found.failures],
            "looked": "; ".join(f"{each.part}: {each.said}" for each in found.looked),
        }

    def resolve(self, verb: Verb, named: Sequence[Named], by: str) -> Mapping[str, Any]:
        """
        Requeue or drop letters, and return what became of each.

        Raises:
            BadSettings: a part is unknown; nothing was done.
        """
        act = requeue if verb == "requeue" else drop
        done, failed = [], []
        for fate in act(self._watch, [Ref(*each) for each in named], by=by):
            match fate:
                case Fate(what="left"):
                    error = fate.why or "it stays"
                    failed.append({"part": fate.part, "place": fate.place, "error": error})
                case Fate():
                    done.append({"part": fate.part, "place": fate.place, "what": fate.what})
                case Failure(part=part, error=error):
                    failed += [
                        {"part": each.part, "place": each.place, "error": error}
                        for each in named
                        if each.part == part or each.part.startswith(f"{part}/")
                    ]
        known = {(each["part"], each["place"]) for each in (*done, *failed)}
        failed += [
            {"part": each.part, "place": each.place, "error": "nothing became of it: ask again"}
            for each in named
            if tuple(each) not in known
        ]
        return {"done": done, "failed": failed}


def _letter(found: Letter) -> dict[str, Any]:
    return {
        "part": found.part,
        "place": found.place,
        "topic": found.topic,
        "key": _text(found.key),
        "id": found.id,
        "type": found.type,
        "at": found.at.isoformat(),
        "reason": found.reason,
        "attempts": found.attempts,
        "value": _text(found.value),
        "headers": [[name, _text(value)] for name, value in found.headers],
        "actions": ["requeue", "drop"],
    }


def _text(value: bytes | None) -> str | None:
    """Return bytes as text; bytes that are no text are shown as hexadecimal digits."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        # The list has only the beginning of a long value, which may end within a character.
        if error.end == len(value) and error.start > len(value) - 4:
            return value[: error.start].decode()
        return f"hex {value[:_MOST_VALUE].hex()}"
