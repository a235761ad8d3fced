from dataclasses import replace

from dovecote.demo.check.published import Published, compare
from dovecote.demo.check.records import Record
from tests.unit.dovecote.demo.world import RECORDS, ROWS, TOLD, record


def found(records: list[Record]) -> Published:
    return replace(compare(ROWS, records), notes=())


def well(**wrong: int) -> Published:
    allright = Published(committed=9, published=9, lost=0, duplicated=0, out_of_order=0, foreign=0)
    return replace(allright, **wrong)  # type: ignore[arg-type]  # only counts are given


def test_a_topic_with_every_row_once_and_in_order_is_well() -> None:
    assert compare(ROWS, RECORDS) == well()


def test_a_missing_record_is_lost() -> None:
    assert found(RECORDS[:2] + RECORDS[3:]) == well(published=8, lost=1)


def test_a_record_of_a_repeated_event_does_not_stand_for_the_other_row() -> None:
    """Both rows carry the same event id: one record too many must not hide one too few."""
    doubled = [*RECORDS[:2], RECORDS[1], *RECORDS[3:]]
    assert found(doubled) == well(lost=1, duplicated=1)


def test_a_second_record_of_a_row_is_duplicated_and_not_out_of_order() -> None:
    again = replace(RECORDS[1], offset=8)
    assert found([*RECORDS[:6], again, *RECORDS[6:]]) == well(published=10, duplicated=1)


def test_two_swapped_records_of_a_flight_are_out_of_order() -> None:
    swapped = [RECORDS[1], RECORDS[0], *RECORDS[2:]]
    assert found(swapped) == well(out_of_order=1)


def test_swapped_records_of_different_flights_are_well() -> None:
    swapped = [*RECORDS[:2], RECORDS[3], RECORDS[2], *RECORDS[4:]]
    assert found(swapped) == well()


def test_a_flight_in_two_partitions_is_out_of_order() -> None:
    astray = replace(RECORDS[5], partition=1, offset=9)
    assert found([*RECORDS[:5], *RECORDS[6:], astray]) == well(out_of_order=1)


def test_a_record_of_a_rolled_back_row_is_foreign() -> None:
    rolled_back = record(TOLD[5]._replace(row="1-99", offset=8, number=5))
    assert found([*RECORDS, rolled_back]) == well(published=10, foreign=1)


def test_a_record_that_says_something_else_than_its_row_is_no_record_of_it() -> None:
    for altered in (
        TOLD[5]._replace(id="other"),
        TOLD[5]._replace(type="FlightCancelled"),
        TOLD[5]._replace(number=9),
        TOLD[5]._replace(flight="OK2"),
    ):
        records = [*RECORDS[:5], record(altered), *RECORDS[6:]]
        assert found(records) == well(lost=1, foreign=1)


def test_every_fault_is_named() -> None:
    notes = compare(ROWS, [RECORDS[1], RECORDS[0], RECORDS[0], *RECORDS[3:]]).notes
    assert notes == (
        "flights/0/0: number 1 of OK1 is late",
        "flights/0/0: row 0-1 again",
        "row 0-2 (FlightDeparted of OK1) is nowhere",
    )
