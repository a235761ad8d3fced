"""The rule of the batch, sentence by sentence, on small examples."""

from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest

from dedup.rules.identity import Identity
from dedup.rules.policies.policies import (
    Failed,
    Handled,
    Skipped,
    Verdict,
    by_key,
    exact,
    first_match,
    latest,
)
from dedup.rules.policies.results import Again, Dead, Done, NonRetriable, Result, Retry, Skip

Order = dict[str, object]


def order(
    id_: str, *, key: str | None = "k", round_: int = 0, amount: int = 1, fails: object = None
) -> Order:
    return {"id": id_, "key": key, "round": round_, "amount": amount, "fails": fails}


def has_amount(record: Order) -> bool:
    return int(str(record["amount"])) > 0


def settle(record: Order) -> Result:
    if isinstance(record["fails"], Exception):
        raise record["fails"]
    return Done()


def identity(record: Order) -> Identity:
    return Identity("/shop", str(record["id"]), int(str(record["round"])))


def first(
    *records: Order,
    matches: Callable[[Order], bool] = has_amount,
    handle: Callable[[Order], Result] = settle,
) -> list[Verdict[Order]]:
    return list(first_match(records, matches=matches, handle=handle, identity=identity))


def kinds(verdicts: Iterable[Verdict[Order]]) -> list[str]:
    return [type(verdict).__name__ for verdict in verdicts]


def reasons(verdicts: Iterable[Verdict[Order]]) -> list[str]:
    return [verdict.reason for verdict in verdicts if isinstance(verdict, Skipped)]


def test_a_batch_is_grouped_by_key_and_keeps_each_keys_order() -> None:
    batch = [order("1", key="a"), order("2", key="b"), order("3", key="a"), order("4", key="b")]
    groups = by_key(batch, lambda record: record["key"])
    assert [(key, [r["id"] for r in group]) for key, group in groups] == [
        ("a", ["1", "3"]),
        ("b", ["2", "4"]),
    ]


def test_one_does_not_simply_take_the_first_record_of_the_key() -> None:
    verdicts = first(order("1", amount=0), order("2"))
    assert verdicts == [
        Skipped(order("1", amount=0), "filtered"),
        Handled(order("2"), Done()),
    ]


def test_a_record_that_fails_the_filter_is_skipped_as_filtered() -> None:
    assert reasons(first(order("1", amount=0))) == ["filtered"]


def test_the_first_record_that_passes_and_succeeds_wins_and_the_rest_is_skipped() -> None:
    verdicts = first(order("1"), order("2"), order("3"))
    assert kinds(verdicts) == ["Handled", "Skipped", "Skipped"]
    assert reasons(verdicts) == ["superseded by 1", "superseded by 1"]


def test_a_later_record_is_skipped_whether_or_not_it_would_pass() -> None:
    assert reasons(first(order("1"), order("2", amount=0))) == ["superseded by 1"]


def test_a_record_whose_handler_raises_goes_to_retry_and_the_next_is_tried() -> None:
    verdicts = first(order("1", fails=LookupError("no such order")), order("2"), order("3"))
    assert kinds(verdicts) == ["Failed", "Handled", "Skipped"]
    assert isinstance(verdicts[0], Failed)
    assert verdicts[0].result.error.startswith("LookupError: no such order (test_batch_rule.py:")


def test_a_record_whose_filter_or_parsing_raises_goes_to_retry_and_the_next_is_tried() -> None:
    def parse_and_filter(record: Order) -> bool:
        if record["amount"] == 13:
            msg = "not JSON"
            raise ValueError(msg)
        return has_amount(record)

    verdicts = first(order("1", amount=13), order("2"), matches=parse_and_filter)
    assert isinstance(verdicts[0], Failed)
    assert verdicts[0].result.error.startswith("ValueError: not JSON (test_batch_rule.py:")
    assert verdicts[1:] == [Handled(order("2"), Done())]


def test_every_failing_record_goes_to_the_error_path_until_one_succeeds() -> None:
    broken = LookupError("no such order")
    verdicts = first(order("1", fails=broken), order("1", fails=broken), order("2", fails=broken))
    assert kinds(verdicts) == ["Failed", "Failed", "Failed"]


def test_a_record_that_no_attempt_could_handle_is_dead_and_the_next_is_tried() -> None:
    verdicts = first(order("1", fails=NonRetriable("closed")), order("2"))
    assert kinds(verdicts) == ["Failed", "Handled"]
    assert isinstance(verdicts[0], Failed)
    assert verdicts[0].result == Dead("closed")


@pytest.mark.parametrize("result", [Retry("busy"), Retry("busy", timedelta(1)), Dead("closed")])
def test_a_failure_returned_is_a_failure_like_one_raised(result: Retry | Dead) -> None:
    verdicts = first(order("1"), order("2"), handle=lambda r: result if r["id"] == "1" else Done())
    assert verdicts == [Failed(order("1"), result), Handled(order("2"), Done())]


def test_a_record_that_succeeds_without_being_finished_wins_its_key() -> None:
    again = Again(timedelta(seconds=30))
    verdicts = first(order("1"), order("2"), handle=lambda _: again)
    assert verdicts == [Handled(order("1"), again), Skipped(order("2"), "superseded by 1")]


def test_a_handler_may_say_that_a_record_is_not_for_it_and_the_next_is_tried() -> None:
    verdicts = first(
        order("1"),
        order("2"),
        handle=lambda r: Skip("another shop's") if r["id"] == "1" else Done(),
    )
    assert verdicts == [
        Skipped(order("1"), "handler: another shop's"),
        Handled(order("2"), Done()),
    ]


def test_a_copy_of_the_winner_is_a_duplicate_and_another_event_superseded() -> None:
    assert reasons(first(order("1"), order("1"), order("2"))) == [
        "duplicate of 1",
        "superseded by 1",
    ]


def test_equal_pairs_of_id_and_round_are_duplicates_and_a_later_round_is_not() -> None:
    rounds = [order("1"), order("1"), order("1", round_=1)]
    assert reasons(first(*rounds)) == ["duplicate of 1", "superseded by 1"]
    verdicts = list(exact(rounds, matches=has_amount, handle=settle, identity=identity))
    assert kinds(verdicts) == ["Handled", "Skipped", "Handled"]
    assert reasons(verdicts) == ["duplicate of 1"]


def test_records_without_a_key_are_never_grouped() -> None:
    groups = by_key([order("1", key=None), order("1", key=None)], lambda record: record["key"])
    verdicts = [verdict for _, group in groups for verdict in first(*group)]
    assert kinds(verdicts) == ["Handled", "Handled"]


def test_exact_keeps_every_event_and_drops_only_copies() -> None:
    records = [order("1"), order("2"), order("1"), order("3", amount=0), order("3", amount=0)]
    verdicts = list(exact(records, matches=has_amount, handle=settle, identity=identity))
    assert kinds(verdicts) == ["Handled", "Handled", "Skipped", "Skipped", "Skipped"]
    assert reasons(verdicts) == ["duplicate of 1", "filtered", "filtered"]


def test_exact_sends_a_failed_record_to_retry_once_and_not_its_copies() -> None:
    failing = order("1", fails=LookupError("no such order"))
    verdicts = list(exact([failing] * 3, matches=has_amount, handle=settle, identity=identity))
    assert kinds(verdicts) == ["Failed", "Skipped", "Skipped"]


def test_latest_handles_the_newest_that_passes() -> None:
    records = [order("1"), order("2"), order("2"), order("3", amount=0)]
    verdicts = list(latest(records, matches=has_amount, handle=settle, identity=identity))
    assert verdicts == [
        Skipped(order("1"), "superseded by 2"),
        Skipped(order("2"), "duplicate of 2"),
        Handled(order("2"), Done()),
        Skipped(order("3", amount=0), "filtered"),
    ]


def test_latest_never_goes_back_to_an_older_record_when_the_newest_fails() -> None:
    newest = order("2", fails=LookupError("no such order"))
    verdicts = list(
        latest([order("1"), newest], matches=has_amount, handle=settle, identity=identity)
    )
    assert kinds(verdicts) == ["Skipped", "Failed"]
    assert reasons(verdicts) == ["superseded by 2"]
