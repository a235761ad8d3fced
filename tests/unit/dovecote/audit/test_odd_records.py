"""A record that is odd does not stop the auditor."""

from dovecote.audit.rules.handled import passed
from dovecote.audit.store import Store
from tests.support.audited_apart import Apart, record


def test_a_source_that_is_no_text_is_kept_as_others_are() -> None:
    apart = Apart(records=[record(1, ce_source=b"/sh\xffop")])
    apart.read()
    apart.judge(1)
    assert apart.comparison.matcher.topics[0].counts.records == 1


def test_a_round_that_no_inbox_can_have_is_the_first() -> None:
    store = Store(None)
    for odd in (b"9" * 20, b"9" * 5_000, b"-1", b"one"):
        found = passed(record(1, dovecote_round=odd), "orders")
        assert found is not None
        assert found.round == 0
        store.keep_waiting("consumer/shipping", [(found, 1)])
