"""JSON from outside that nests too deeply is wrong as other text is: no part ends by it."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from dedup.replay.trace import BadTrace, read
from dedup.rules import json_text
from dovecote.audit.rules.statement import first_broken, hash_of
from dovecote.contracts.rules.contract import parsed
from dovecote.observe.dead.order import decoded
from dovecote.process import strict_json
from outbox import BadSettings
from outbox.testing.rows import event_of
from outbox.tokens import identity
from outbox.tokens.token import claims
from relay.rules.places.progress import Progress
from spark_jobs.checkpoint import damage, restarts
from spark_jobs.sink.markers import Marker

DEEP = b"[" * 100_000 + b"]" * 100_000
TEXT = DEEP.decode()
ENCODED = urlsafe_b64encode(DEEP).decode()
TIME = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reading", "error", "said"),
    [
        (lambda: Progress.decode(DEEP), ValueError, "not a progress record"),
        (lambda: Marker.decode(DEEP), ValueError, "not a marker"),
        (lambda: strict_json.loads(TEXT), ValueError, "it nests too deeply"),
        (lambda: json_text.loads(DEEP), ValueError, "recursion limit"),
        (lambda: list(read([DEEP])), BadTrace, "line 1 of the trace is not JSON"),
        (lambda: identity.made(TEXT), ValueError, "it must be a table"),
        (lambda: decoded(ENCODED), BadSettings, "not where a page of letters ended"),
        (lambda: parsed(TEXT, "x.json"), BadSettings, "x.json is no JSON"),
        (lambda: damage.pins("c", "pins", TEXT), BadSettings, "c/pins is cut"),
        (lambda: restarts.decode(TEXT), ValueError, "it has no list of runs"),
    ],
)
def test_it_is_refused_in_the_words_of_each_reader(
    reading: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        reading()


@pytest.mark.parametrize(
    ("reading", "found"),
    [
        (lambda: claims(f"a.{ENCODED}.c"), {}),
        (lambda: hash_of(TEXT), None),
        (lambda: first_broken([TEXT]), "line 1 is not a statement"),
    ],
)
def test_or_it_says_nothing_as_other_text_does(
    reading: Callable[[], object], found: object
) -> None:
    assert reading() == found


def test_an_event_that_a_test_reads_keeps_its_bytes() -> None:
    row: list[Any] = ["t", None, DEEP, "T", "i", "/s", None, TIME, "application/json"]
    assert event_of(row, []).value == DEEP
