"""The ranges that a batch reads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.errors import SourceChanged
from spark_jobs.source.offsets import (
    Offsets,
    Range,
    begin,
    by_lane,
    cut_off,
    digest,
    limited,
    ranges,
    require_same,
    shared_out,
    shown,
)

EARLIEST = Offsets({"a": {0: 10, 1: 0}, "b": {0: 0}}, {"a": "ia", "b": "ib"})
LATEST = Offsets({"a": {0: 110, 1: 50}, "b": {0: 0}}, {"a": "ia", "b": "ib"})


def test_offsets_are_written_as_sparks_own_source_writes_them_with_the_topics_ids() -> None:
    text = LATEST.encode()

    assert json.loads(text) == {
        "a": {"0": 110, "1": 50, "id": "ia"},
        "b": {"0": 0, "id": "ib"},
    }
    assert Offsets.decode(text) == LATEST
    assert Offsets.decode('{"a":{"0":5}}') == Offsets({"a": {0: 5}})


def test_a_topic_that_is_no_longer_read_is_left_out() -> None:
    assert LATEST.of_topics(["b", "c"]) == Offsets({"b": {0: 0}}, {"b": "ib"})
    assert LATEST.of_topics(["?", "!a"]) == Offsets({"b": {0: 0}}, {"b": "ib"})
    assert LATEST.of_topics(["[ab]"]) == LATEST


def test_equal_offsets_have_equal_texts() -> None:
    other = Offsets({"b": {0: 0}, "a": {1: 50, 0: 110}}, {"b": "ib", "a": "ia"})

    assert other.encode() == LATEST.encode()


@pytest.mark.parametrize(
    ("wanted", "ends"),
    [
        ("earliest", EARLIEST.ends),
        ("latest", LATEST.ends),
        ('{"a": {"0": 42}}', {"a": {0: 42, 1: 0}, "b": {0: 0}}),
        ('{"a": {"0": -1, "1": -1}}', {"a": {0: 110, 1: 50}, "b": {0: 0}}),
        ('{"a": {"0": -2}}', EARLIEST.ends),
        ("{}", EARLIEST.ends),
    ],
)
def test_a_query_begins_where_the_settings_say(
    wanted: str, ends: dict[str, dict[int, int]]
) -> None:
    assert begin(wanted, EARLIEST, LATEST) == Offsets(ends, EARLIEST.ids)


def test_a_topic_that_only_one_of_the_answers_has_is_not_there_yet() -> None:
    assert begin("{}", EARLIEST, LATEST.without({"b"})) == EARLIEST
    with pytest.raises(SourceChanged, match="b/0, which does not exist"):
        begin('{"b": {"0": -1}}', EARLIEST, LATEST.without({"b"}))


@pytest.mark.parametrize("offset", [111, 10**18])
def test_a_query_cannot_begin_after_the_end(offset: int) -> None:
    assert begin('{"a": {"0": 110}}', EARLIEST, LATEST).ends["a"][0] == 110
    with pytest.raises(SourceChanged, match=f"offset {offset} of a/0, which ends at 110: write"):
        begin(f'{{"a": {{"0": {offset}}}}}', EARLIEST, LATEST)


@pytest.mark.parametrize("wanted", ['{"a": {"2": 1}}', '{"c": {"0": 1}}'])
def test_a_query_cannot_begin_where_nothing_is(wanted: str) -> None:
    with pytest.raises(SourceChanged, match="does not exist"):
        begin(wanted, EARLIEST, LATEST)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (Offsets({"a": {0: 1, 1: 1}}), "gone"),
        (Offsets({"a": {0: 1}, "b": {0: 1}}), "made anew"),
        (Offsets({"a": {0: 1, 1: 1}, "b": {0: 1}}, {"a": "ia", "b": "other"}), "made anew"),
    ],
)
def test_another_topic_of_the_same_name_is_refused(found: Offsets, named: str) -> None:
    with pytest.raises(SourceChanged, match=named):
        require_same(EARLIEST, found)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (("a", "b"), "Put it back, or take it out of source.topics and run once with --adopt"),
        (("a", "b", "*"), "or take it out of source.topics and run"),
        (("a", "?*"), 'or add "!b" to source.topics, which takes it out of ?*, and run once with'),
    ],
)
def test_a_topic_that_is_gone_can_be_taken_out(entries: tuple[str, ...], says: str) -> None:
    with pytest.raises(SourceChanged, match="topic b is gone") as refused:
        require_same(EARLIEST, EARLIEST.without({"b"}), entries)

    assert says in str(refused.value)


def test_more_topics_partitions_and_records_are_the_same_topics() -> None:
    more = {"a": {0: 1, 1: 1, 2: 1}, "b": {0: 1}, "c": {0: 1}}

    require_same(EARLIEST, Offsets(more, {**EARLIEST.ids, "c": "ic"}))
    require_same(Offsets(EARLIEST.ends), LATEST)  # written before topics had ids


def test_a_topic_that_ends_before_what_was_read_has_lost_records() -> None:
    assert cut_off(EARLIEST, LATEST) is None
    assert cut_off(LATEST, EARLIEST) == Range("a", 0, 10, 110)


def test_a_batch_takes_fair_shares_and_at_least_one_record() -> None:
    found = limited(EARLIEST, LATEST, EARLIEST, 30)

    assert found.ends == {"a": {0: 30, 1: 10}, "b": {0: 0}}
    assert limited(EARLIEST, LATEST, EARLIEST, 1).ends == {"a": {0: 11, 1: 1}, "b": {0: 0}}
    assert limited(EARLIEST, LATEST, EARLIEST, None) == LATEST


def test_a_new_partition_is_noted_where_it_begins_and_read_from_the_next_batch_on() -> None:
    latest = Offsets({"a": {0: 110, 1: 50, 2: 9}, "b": {0: 0}, "c": {0: 7}}, {"c": "ic"})
    earliest = Offsets({"a": {0: 10, 1: 0, 2: 3}, "b": {0: 0}, "c": {0: 0}})

    first = limited(LATEST, latest, earliest, 100)
    second = limited(first, latest, earliest, 100)

    assert ranges(LATEST, first) == []
    assert ranges(first, second) == [Range("a", 2, 3, 9), Range("c", 0, 0, 7)]
    assert second.ids == {"a": "ia", "b": "ib", "c": "ic"}


def test_a_whole_new_topic_is_read_from_its_first_record_once_its_beginning_is_known() -> None:
    latest = Offsets({**LATEST.ends, "c": {0: 7, 1: 2}}, {**LATEST.ids, "c": "ic"})
    beginnings = Offsets({"c": {0: 3}})

    unknown = limited(LATEST, latest, EARLIEST, 100)
    half = limited(unknown, latest, beginnings, 100)
    whole = limited(half, latest, Offsets({"c": {0: 3, 1: 0}}), 100)

    assert unknown == LATEST
    assert half == Offsets({**LATEST.ends, "c": {0: 3}}, latest.ids)
    assert ranges(half, whole) == [Range("c", 0, 3, 7)]
    assert ranges(whole, limited(whole, latest, Offsets({}), 100)) == [Range("c", 1, 0, 2)]


def test_an_end_that_went_back_reads_nothing() -> None:
    assert limited(LATEST, EARLIEST, EARLIEST, 100) == LATEST


_ENDS = st.dictionaries(
    st.sampled_from("ab"), st.dictionaries(st.integers(0, 3), st.integers(0, 1000)), max_size=2
)


@given(_ENDS, st.integers(1, 500))
def test_batches_read_everything_once(ends: dict[str, dict[int, int]], most: int) -> None:
    latest = Offsets(ends)
    at = Offsets({topic: dict.fromkeys(each, 0) for topic, each in ends.items()})
    seen: list[Range] = []
    for _ in range(2 + sum(sum(each.values()) for each in ends.values())):
        after = limited(at, latest, at, most)
        batch = ranges(at, after)
        partitions = sum(map(len, ends.values()))
        assert sum(each.end - each.start for each in batch) <= most + partitions
        if not batch:
            break
        seen, at = seen + batch, after
    for topic, partitions_of in ends.items():
        for partition, end in partitions_of.items():
            mine = [each for each in seen if each[:2] == (topic, partition)]
            assert [each.start for each in mine] == [0, *(each.end for each in mine)][: len(mine)]
            assert (mine[-1].end if mine else 0) == end


def test_the_same_ranges_of_the_same_topics_have_the_same_digest() -> None:
    plan = ranges(EARLIEST, LATEST)

    assert digest(plan, LATEST.ids) == digest(list(plan), dict(LATEST.ids))
    assert digest(plan, {"a": "another"}) != digest(plan, LATEST.ids)
    assert digest(plan[1:], LATEST.ids) != digest(plan, LATEST.ids)


def test_a_partition_belongs_to_a_lane() -> None:
    plan = [Range("a", 0, 0, 1), Range("a", 1, 0, 1), Range("a", 2, 0, 1), Range("b", 2, 0, 1)]

    assert by_lane(plan, 2) == {0: [plan[0], plan[2], plan[3]], 1: [plan[1]]}


@given(st.lists(st.integers(1, 1000), max_size=20), st.integers(1, 6))
def test_tasks_share_the_ranges_evenly(sizes: list[int], tasks: int) -> None:
    plan = [Range("t", number, 0, size) for number, size in enumerate(sizes)]

    parts = shared_out(plan, tasks)

    assert sorted(each for part in parts for each in part) == plan
    assert all(parts)
    assert len(parts) == min(tasks, len(plan))
    loads = [sum(each.end for each in part) for part in parts]
    assert max(loads, default=0) - min(loads, default=0) <= max(sizes, default=0)


def test_a_message_names_where_a_batch_reads_and_how_much_it_leaves_out() -> None:
    assert shown([]) == "no records"
    assert shown([Range("a", 0, 5, 8)]) == "a/0 from offset 5 to 7"
    assert shown([Range("a", n, 5, 6) for n in range(10)]).endswith(
        "a/7 from offset 5 to 5, 2 more"
    )


def test_the_ids_of_topics_name_records_as_kafkas_own_tools_write_them() -> None:
    none = "A" * 22
    found = Offsets({}, {"a": "n/Ne2fw2QOKEJyt4Dk6f+Q", "b": none}).topic_ids()
    assert found == {"a": "n_Ne2fw2QOKEJyt4Dk6f-Q"}
