from pathlib import Path

from dovecote.demo.watch import batched

OFFSETS = ['{"flights":{"0":5,"1":7}}', '{"flights":{"0":9,"1":7}}', '{"flights":{"0":9,"1":8}}']


def checkpoint(directory: Path, *, commits: int) -> Path:
    for folder in ("offsets", "commits"):
        (directory / folder).mkdir()
    for number, ends in enumerate(OFFSETS):
        (directory / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
        # Spark keeps checksums beside its files.
        (directory / "offsets" / f".{number}.crc").touch()
    for number in range(commits):
        (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (directory / "metadata").write_text('{"id":"q"}')
    return directory


def test_the_job_has_read_up_to_the_end_of_its_last_finished_batch(tmp_path: Path) -> None:
    assert batched(checkpoint(tmp_path, commits=2), "flights") == {0: 9, 1: 7}


def test_a_job_without_a_finished_batch_has_read_nothing(tmp_path: Path) -> None:
    assert batched(checkpoint(tmp_path, commits=0), "flights") == {}
    assert batched(tmp_path / "absent", "flights") == {}
