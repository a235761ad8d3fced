"""The examples and the tables of docs/push.md hold."""

import json
import time
from datetime import UTC, datetime

import pytest

from dedup.rules.policies.results import Dead, Done, Early, Retry
from dovecote.push.delivery import shape
from dovecote.push.metrics import Metrics
from dovecote.push.rules.sending.verdict import Answered, Disable, judge
from dovecote.push.rules.subscription.subscription import subscription
from tests.support.documents import ROOT, Block, blocks, counted, table

DOCUMENT = ROOT / "docs/push.md"


@pytest.mark.parametrize("block", blocks(DOCUMENT, "python"))
def test_the_examples_run(block: Block) -> None:
    names = {"__name__": "example", "now": int(time.time())}
    exec(compile(block.text, str(DOCUMENT), "exec"), names)  # noqa: S102  # the document's own


def test_the_subscription_that_is_shown_is_one() -> None:
    (block,) = blocks(DOCUMENT, "json")
    found = subscription(json.loads(block.text))
    assert shape.most_in_flight(found) == 100
    assert found.requeued == "dovecote.push.shipping.requeued"


def test_answers_mean_what_the_table_says() -> None:
    found = subscription({"id": "x", "topics": ["t"], "endpoint": {"url": "https://a.example"}})
    meant = {
        status: type(judge(Answered(status), shape.rules(found), now=datetime.now(UTC)))
        for status in range(200, 600)
    }
    told = {row[1]: row[0] for row in table(DOCUMENT, "Answers")}
    at_once = "is a dead letter at once: the answer is about this record"
    dead = {int(text) for text in told[at_once].split(", ")}
    for status, meaning in meant.items():
        if status < 300:
            assert meaning is Done
        elif status in dead:
            assert meaning is Dead, status
        else:
            assert meaning is {410: Disable, 429: Early}.get(status, Retry), status


def test_the_table_of_metrics_is_what_push_exposes() -> None:
    shown = {row[0].strip("`"): row[1] for row in table(DOCUMENT, "Metrics")}
    assert shown == {
        counted(metric): metric.documentation for metric in Metrics().registry.collect()
    }
