"""Each record contributes once, whatever happens to the job."""

from collections import Counter
from dataclasses import replace

import pytest

from spark_jobs.errors import MarkerRefused
from spark_jobs.source.offsets import Offsets
from tests.spark.fix_spark import Job, MakeJob
from tests.support.waiting import patient


def _keys(*names: str) -> list[tuple[str, bytes, list[tuple[str, bytes]]]]:
    return [(name, b"{}", []) for name in names]


def _written(job: Job) -> Counter[bytes | None]:
    return Counter(each.key for each in job.output())


def _forget(job: Job, log: str) -> int:
    """Remove the last entry of one of the checkpoint's logs; return its number."""
    last = max(int(file.name) for file in (job.checkpoint / log).glob("[0-9]*"))
    (job.checkpoint / log / str(last)).unlink()
    (job.checkpoint / log / f".{last}.crc").unlink(missing_ok=True)
    return last


def _elsewhere(job: Job) -> Job:
    """Return the job as if somebody started it without its checkpoint."""
    return job.with_(spark={"checkpoint": f"{job.checkpoint}-new"})


def test_a_batch_that_spark_does_not_know_to_be_done_is_not_written_again(job: MakeJob) -> None:
    dedup = job()
    dedup.send(*_keys(*(f"k{n}" for n in range(50))))
    dedup.run()
    assert _forget(dedup, "commits") == 0
    dedup.send(*_keys("after"))

    again, after = dedup.run()

    assert (again.batch, again.replayed, again.rows, again.handled) == (0, 2, 50, 50)
    assert (after.batch, after.replayed, after.rows) == (1, 0, 1)
    assert _written(dedup) == Counter({**{f"k{n}".encode(): 1 for n in range(50)}, b"after": 1})


def test_a_batch_that_was_half_written_is_finished(job: MakeJob) -> None:
    dedup = job()
    dedup.send(*_keys("one"))
    dedup.run()
    dedup.send(*_keys(*(f"k{n}" for n in range(40))))
    dedup.run()
    _forget(dedup, "commits")
    # As if only one of its two shuffle partitions had been written: the other's marker is older.
    written = dedup.markers()
    other = max(written)
    _write_marker(dedup, other)
    before = _written(dedup)

    (line,) = dedup.run()

    assert line.replayed == 1
    doubled = {key for key, count in _written(dedup).items() if count > before[key]}
    assert len(doubled) == written[other].counts.handled


def _write_marker(job: Job, partition: int) -> None:
    """Put the marker of `partition` one batch back."""
    from spark_jobs.policy import job as dedup
    from spark_jobs.sink.marker_topic import MarkerTopic
    from spark_jobs.sink.writer import Writer

    config = dedup.stage_config(job.settings).sink
    writer = Writer(
        config.kafka,
        transactional_id=f"{config.transactional_id}.{partition}",
        partition=partition,
        topic=MarkerTopic(config.marker_topic, config.kafka, timeout=patient(30)),
        timeout=patient(30),
    )
    writer.open()
    assert writer.marker is not None
    writer.commit([], replace(writer.marker, batch=writer.marker.batch - 1))
    writer.close()


def test_a_query_with_another_checkpoint_is_refused_until_it_adopts(job: MakeJob) -> None:
    old = job()
    old.send(*_keys("a", "b", "c", "d"))
    old.run()
    new = _elsewhere(old)

    with pytest.raises(MarkerRefused, match="--adopt"):
        new.run()
    assert sum(_written(new).values()) == 4
    (line,) = new.run(adopt=True)

    # It has read everything again, as a new checkpoint asks for.
    assert (line.batch, line.rows) == (0, 4)
    assert set(_written(new).values()) == {2}
    new.send(*_keys("e"))
    assert [(each.batch, each.rows) for each in new.run()] == [(1, 1)]
    with pytest.raises(MarkerRefused, match="--adopt"):
        _more(old, "f").run()


def _more(job: Job, key: str) -> Job:
    job.send(*_keys(key))
    return job


def test_a_copy_that_is_refused_has_not_stopped_the_original(job: MakeJob) -> None:
    original = job()
    original.send(*_keys("a", "b"))
    original.run()
    with pytest.raises(MarkerRefused):
        _elsewhere(original).run()

    (line,) = _more(original, "c").run()

    assert (line.rows, line.replayed) == (1, 0)
    assert _written(original) == Counter({b"a": 1, b"b": 1, b"c": 1})


def test_another_count_of_shuffle_partitions_is_refused_until_it_is_adopted(job: MakeJob) -> None:
    two = job()
    two.send(*_keys(*(f"k{n}" for n in range(30))))
    two.run()
    three = two.with_(spark={"shuffle_partitions": 3})
    three.send(*_keys("more"))

    with pytest.raises(MarkerRefused, match="shuffle_partitions` back to 2"):
        three.run()
    (line,) = three.run(adopt=True)

    # The refused run had planned batch 1; nothing of batch 0 comes again.
    assert (line.batch, line.rows, line.replayed) == (1, 1, 0)
    assert set(_written(three).values()) == {1}


def test_a_batch_half_written_with_another_count_must_be_finished_first(job: MakeJob) -> None:
    two = job()
    two.send(*_keys(*(f"k{n}" for n in range(30))))
    two.run()
    _forget(two, "commits")

    with pytest.raises(MarkerRefused, match="half written"):
        two.with_(spark={"shuffle_partitions": 3}).run(adopt=True)

    assert two.run()[0].replayed == 2
    assert set(_written(two).values()) == {1}


def test_a_batch_of_other_rows_than_were_written_is_refused_until_it_is_adopted(
    job: MakeJob,
) -> None:
    dedup = job()
    dedup.send(*_keys(*(f"k{n}" for n in range(30))))
    dedup.run()
    _forget(dedup, "commits")
    log = dedup.checkpoint / "offsets" / "0"
    *head, ends = log.read_text().splitlines()
    read = Offsets.decode(ends)
    fewer = {t: {p: end - 1 for p, end in of.items()} for t, of in read.ends.items()}
    log.write_text("\n".join([*head, Offsets(fewer, read.ids).encode()]))
    (dedup.checkpoint / "offsets" / ".0.crc").unlink()

    with pytest.raises(MarkerRefused, match=r"from other rows.*--adopt"):
        dedup.run()
    assert set(_written(dedup).values()) == {1}
    lines = dedup.run(adopt=True)

    assert sum(line.rows for line in lines) == 30
    assert set(_written(dedup)) == {f"k{n}".encode() for n in range(30)}


def test_an_older_checkpoint_is_refused(job: MakeJob) -> None:
    dedup = job()
    for key in ("a", "b"):
        _more(dedup, key).run()
    for log in ("commits", "offsets"):
        assert _forget(dedup, log) == 1
    _forget(dedup, "commits")

    with pytest.raises(MarkerRefused, match="older checkpoint"):
        dedup.run()
