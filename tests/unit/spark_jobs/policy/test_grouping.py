"""How the records of a key meet."""

from spark_jobs.policy.grouping import PARTITIONS, SHUFFLE, Choice

FITS, FITS_NOT = {"a": 4, "b": 2}, {"a": 4, "b": 3}


def test_a_query_begins_with_what_is_right_for_any_partitioner() -> None:
    assert Choice("auto", 2).choose(FITS) == SHUFFLE


def test_it_goes_over_when_no_record_lay_elsewhere() -> None:
    choice = Choice("auto", 2)

    choice.took(999, 0)
    assert choice.choose(FITS) == SHUFFLE
    choice.took(1, 0)
    assert choice.choose(FITS) == PARTITIONS


def test_a_record_that_lay_elsewhere_brings_the_shuffle_back_for_long() -> None:
    choice = Choice("auto", 2)
    choice.took(5_000, 0)

    choice.took(5_000, 1)
    assert choice.choose(FITS) == SHUFFLE
    choice.took(900_000, 0)
    assert choice.choose(FITS) == SHUFFLE
    choice.took(100_000, 0)
    assert choice.choose(FITS) == PARTITIONS


def test_partitions_that_are_no_multiple_of_the_lanes_are_shuffled() -> None:
    choice = Choice("partitions", 2)

    assert choice.choose(FITS_NOT) == SHUFFLE
    assert choice.choose(FITS) == PARTITIONS


def test_what_the_settings_say_holds() -> None:
    choice = Choice("shuffle", 2)
    choice.took(1_000_000, 0)

    assert choice.choose(FITS) == SHUFFLE
    assert Choice("partitions", 1).choose(FITS_NOT) == PARTITIONS
