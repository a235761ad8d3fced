"""Damage of a checkpoint, and what resolves it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from outbox.errors import BadSettings
from spark_jobs.checkpoint.damage import began, local, pins, require_whole

OFFSETS = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"t":{"0":5}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for log, text, count in (("offsets", OFFSETS, 5), ("commits", 'v1\n{"nextBatch":0}', 4)):
        (tmp_path / log).mkdir()
        for number in range(count):
            (tmp_path / log / str(number)).write_text(text)
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    (tmp_path / "state").mkdir()
    return tmp_path


def test_a_whole_checkpoint_and_a_new_one_are_in_order(checkpoint: Path, tmp_path: Path) -> None:
    require_whole(checkpoint, has_state=True)
    (checkpoint / "commits" / "4").write_text("v1\n{}")
    require_whole(checkpoint, has_state=True)
    require_whole(tmp_path / "new", has_state=True)


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text()[:-5])


def emptied(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("")


def removed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (emptied("metadata"), "metadata is empty"),
        (cut("metadata"), "metadata is cut"),
        (removed("metadata"), "metadata is gone"),
        (emptied("offsets/4"), r"offsets/4 is empty.*remove it with its \.4\.crc"),
        (cut("offsets/4"), r"offsets/4 is cut.*the batch is planned again"),
        (
            lambda folder: (folder / "offsets" / "4").write_text(OFFSETS.rpartition("\n")[0]),
            r"offsets/4 is cut.*the batch is planned again",
        ),
        (cut("offsets/3"), "offsets/3 is cut.*put the checkpoint back"),
        (emptied("commits/3"), "commits/3 is empty.*the batch runs again"),
        (removed("offsets/3"), "offsets/3 is gone, between others"),
        (
            lambda folder: shutil.rmtree(folder / "state"),
            "state is gone, which holds",
        ),
    ],
)
def test_damage_is_said_with_what_resolves_it(
    checkpoint: Path, damage: Callable[[Path], object], says: str
) -> None:
    damage(checkpoint)
    with pytest.raises(BadSettings, match=says):
        require_whole(checkpoint, has_state=True)


@pytest.mark.parametrize(("text", "is_"), [("", "empty"), ('{"job": "sess', "cut"), ("[]", "cut")])
def test_settings_that_are_cut_are_said_with_what_resolves_it(text: str, is_: str) -> None:
    with pytest.raises(BadSettings, match=rf"dovecote\.json is {is_}: remove it .* --adopt"):
        pins("/c", "dovecote.json", text)
    assert pins("/c", "dovecote.json", '{"job": "a"}') == {"job": "a"}


@pytest.mark.parametrize(("text", "is_"), [("", "empty"), ("v1\n", "cut"), ('v1\n{"t":{', "cut")])
def test_where_sparks_own_source_began_is_said_to_be_cut(text: str, is_: str) -> None:
    with pytest.raises(BadSettings, match=f"/c/sources/0/0 is {is_}: put the checkpoint back"):
        began("/c", "sources/0/0", text)
    assert began("/c", "sources/0/0", '\0v1\n{"t":{"0":5}}') == {"t": {"0": 5}}


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("/data/orders", "/data/orders"),
        ("data/orders", "data/orders"),
        ("./a:b", "a:b"),
        ("file:/data/orders", "/data/orders"),
        ("file:///data/orders", "/data/orders"),
        ("file:///data/a%20b", "/data/a%20b"),
        ("file://other/data", None),
        ("file:orders", None),
        ("hdfs:/data/orders", None),
        ("hdfs:///data/orders", None),
        ("s3a://shop/orders", None),
    ],
)
def test_a_checkpoint_is_on_this_machine_where_hadoop_looks_for_it_here(
    name: str, folder: str | None
) -> None:
    assert local(name) == (None if folder is None else Path(folder))
