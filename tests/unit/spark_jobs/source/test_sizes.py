"""The mean size of records, as driver and planner share it."""

from pathlib import Path

from spark_jobs.source.sizes import Sizes, shared

MIB = 1 << 20


def test_before_the_first_batch_each_record_may_be_large(tmp_path: Path) -> None:
    sizes = Sizes(str(tmp_path / "mean"))

    assert sizes.records(10 * MIB) == 10
    assert sizes.records(1) == 1  # a batch of none would never end


def test_larger_records_count_at_once_and_smaller_ones_by_and_by(tmp_path: Path) -> None:
    ours, planners = Sizes(str(tmp_path / "mean")), Sizes(str(tmp_path / "mean"))

    ours.took(100, 1_000)
    assert planners.records(1_000) == 100
    ours.took(2, 2_000)
    assert planners.records(1_000) == 1
    ours.took(1_000, 10_000)
    assert planners.records(1_010) == 2
    for _ in range(20):
        ours.took(1_000, 10_000)
    assert planners.records(1_000) == 99


def test_a_batch_that_has_read_nothing_tells_nothing(tmp_path: Path) -> None:
    sizes = Sizes(str(tmp_path / "mean"))
    sizes.took(10, 100)

    sizes.took(0, 0)
    sizes.took(7, 0)  # written before, and not read again

    assert sizes.records(1_000) == 100


def test_the_file_goes_with_the_run() -> None:
    with shared() as file:
        Sizes(file).took(1, 1)
        assert Path(file).exists()
    assert not Path(file).parent.exists()
