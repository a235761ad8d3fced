from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.lanes.assigned import assigned
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.lanes.offset_metadata import LIMIT, decode, encode, topic_of
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.record import Record

# The offsets of a partition, with gaps as markers and compaction leave them.
PARTITIONS = st.sets(st.integers(0, 400), min_size=1).map(sorted)


@given(PARTITIONS, st.data())
def test_what_is_committed_is_the_first_offset_that_is_not_completed(
    partition: list[int], data: st.DataObject
) -> None:
    offsets = Offsets()
    polled = data.draw(st.integers(1, len(partition)))
    for offset in partition[:polled]:
        assert offsets.polled(offset)
    order = data.draw(st.permutations(partition[:polled]))
    completed = order[: data.draw(st.integers(0, polled))]
    for offset in completed:
        offsets.complete([offset])
    pending = sorted(set(partition[:polled]) - set(completed))
    assert offsets.position == (pending[0] if pending else partition[polled - 1] + 1)
    assert offsets.pending == len(pending)


@given(PARTITIONS, st.data())
def test_a_restart_repeats_what_was_pending_and_nothing_that_was_completed(
    partition: list[int], data: st.DataObject
) -> None:
    """Restart after restart, some records are completed in each."""
    completed: list[int] = []
    start, metadata = None, None
    for _ in range(data.draw(st.integers(1, 4))):
        offsets = Offsets(start, metadata)
        todo = [
            offset
            for offset in partition[: data.draw(st.integers(1, len(partition)))]
            if (start is None or offset >= start) and offsets.polled(offset)
        ]
        assert not set(todo) & set(completed)
        now = [offset for offset in todo if data.draw(st.booleans())]
        offsets.complete(now)
        completed += now
        if (commit := offsets.commit()) is not None:
            assert commit.whole
            start, metadata = commit.offset, commit.metadata
    # Nothing is skipped either: the rest is everything that was never completed.
    rest = Offsets(start, metadata)
    left = [o for o in partition if (start is None or o >= start) and rest.polled(o)]
    assert left == [offset for offset in partition if offset not in completed]


@given(PARTITIONS, st.data())
def test_the_end_is_committed_whenever_it_was_reached_once_nothing_is_pending(
    partition: list[int], data: st.DataObject
) -> None:
    """Records are completed before the end is reached, and after it; others come after that."""
    offsets = Offsets()
    pending: list[int] = []
    ends = data.draw(st.sets(st.sampled_from(partition)))
    end = -1
    for offset, following in zip(partition, [*partition[1:], partition[-1] + 5], strict=True):
        offsets.polled(offset)
        pending.append(offset)
        end = -1
        if offset in ends:
            # Between two records, the log may end for a while, or have only markers.
            end = data.draw(st.integers(offset + 1, following))
            offsets.reached(end)
        for each in data.draw(st.sets(st.sampled_from(pending))) if pending else ():
            offsets.complete([each])
            pending.remove(each)
        if end >= 0 and data.draw(st.booleans()):
            end = data.draw(st.integers(end, following))
            offsets.reached(end)
        expected = pending[0] if pending else max(offset + 1, end)
        assert offsets.position == expected


def test_trailing_markers_are_stepped_over_once_nothing_is_pending() -> None:
    offsets = Offsets(10)
    offsets.polled(10)
    offsets.reached(12)
    assert offsets.position == 10
    offsets.complete([10])
    assert offsets.position == 12


def test_a_log_that_was_reset_is_begun_again_and_nothing_of_it_is_passed_over() -> None:
    _, metadata, _ = committed(Offsets(1_000), [1_000, 1_001, 1_002], completed=[1_001])
    offsets = Offsets(1_000, metadata)
    assert offsets.polled(0)
    assert offsets.position == 0
    assert offsets.polled(1)


def committed(
    offsets: Offsets, polled: list[int], *, completed: list[int]
) -> tuple[int, str, bool]:
    for offset in polled:
        offsets.polled(offset)
    offsets.complete(completed)
    commit = offsets.commit()
    assert commit is not None
    return commit


def test_of_a_new_group_nothing_is_committed_before_something_was_polled() -> None:
    assert Offsets().commit() is None
    assert committed(Offsets(), [7], completed=[]) == (7, "", True)


RANGES = st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 3_000))).map(
    lambda pairs: ranges(100, pairs)
)


def ranges(position: int, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found = []
    for gap, length in pairs:
        found.append((position + gap, position + gap + length))
        position += gap + length
    return found


@given(RANGES)
def test_the_metadata_says_what_it_was_given_and_a_broker_takes_it(
    completed: list[tuple[int, int]],
) -> None:
    text, whole = encode(100, completed)
    assert len(text) <= LIMIT
    told = decode(100, text)
    assert told == (completed if whole else completed[: len(told)])
    assert whole or len(told) > 1_000


def test_every_other_record_of_a_full_skew_fits() -> None:
    every_other = [(offset, offset + 1) for offset in range(1, 20_000, 2)]
    text, whole = encode(0, every_other)
    assert whole
    assert len(text) < LIMIT
    assert decode(0, text) == every_other


def test_text_that_is_not_ours_tells_of_nothing() -> None:
    for text in (None, "", "someone else's", "dove1r", "dove1r$$$", "dove1b=", "dove1rgA=="):
        assert decode(5, text) == []


TOPIC_ID = "PolNg21HQi6d_zBlsLuZrA"


@given(PARTITIONS, st.sampled_from([0, 10, 27, 28, 40, LIMIT]))
def test_the_metadata_says_of_which_topic_it_is(partition: list[int], limit: int) -> None:
    completed = [(offset + 1, offset + 2) for offset in partition[::2]]
    text, whole = encode(0, completed, limit, topic_id=TOPIC_ID)
    assert len(text) <= limit
    assert topic_of(text) == (TOPIC_ID if limit >= 28 else None)
    without, is_whole = encode(0, completed, limit - (28 if limit >= 28 else 0))
    assert (decode(0, text), whole) == (decode(0, without), is_whole)
    assert topic_of(without) is None


def test_an_offset_without_the_id_of_its_topic_is_committed_again_with_it() -> None:
    stretch = Lanes[Record]().begin("t", 0)
    for metadata in (None, "a note", encode(5, [(7, 9)])[0]):
        new = assigned(stretch, Offsets(5, metadata, topic_id=TOPIC_ID), max_skew=10)
        commit = new.to_commit()
        assert commit is not None
        assert (commit.offset, topic_of(commit.metadata)) == (5, TOPIC_ID)
        assert decode(5, commit.metadata) == decode(5, metadata)
        again = assigned(stretch, Offsets(5, commit.metadata, topic_id=TOPIC_ID), max_skew=10)
        assert again.to_commit() is None
    assert assigned(stretch, Offsets(5), max_skew=10).to_commit() is None
    assert assigned(stretch, Offsets(topic_id=TOPIC_ID), max_skew=10).to_commit() is None
