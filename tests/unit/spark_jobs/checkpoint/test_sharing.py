"""A checkpoint with state must be where all executors see it."""

import pytest

from spark_jobs.checkpoint.sharing import Look, is_one_process, unshared


def test_a_disk_that_all_share_will_do() -> None:
    assert unshared("/mnt/c", [Look("a", sees=True), Look("b", sees=True)]) is None


def test_machines_that_do_not_see_it_are_named_once() -> None:
    looks = [Look("b", sees=False), Look("a", sees=True), Look("b", sees=False)]

    found = unshared("/var/lib/c", looks)

    assert found is not None
    assert "spark.checkpoint /var/lib/c is on a disk that not all machines share" in found
    assert "executors on b do not see dovecote.json there" in found


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://a:7077", False),
        ("yarn", False),
    ],
)
def test_only_a_local_master_is_one_process(master: str, expected: bool) -> None:  # noqa: FBT001  # a parameter
    assert is_one_process(master) is expected
