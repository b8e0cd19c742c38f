"""The offset table: commits, resets that wait, what operators ask, the file."""

from __future__ import annotations

from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.wire import fastjson


def test_the_last_commit_wins_also_backwards() -> None:
    offsets = OffsetTable()
    assert offsets.query("G", "T", 0) is None
    offsets.commit("G", "T", 0, 10)
    offsets.commit("G", "T", 0, 7)
    assert offsets.query("G", "T", 0) == 7
    assert offsets.query("G", "T", 1) is None
    assert offsets.query("G", "Other", 0) is None


def test_an_offset_below_zero_is_kept_and_counts_as_none() -> None:
    offsets = OffsetTable()
    offsets.commit("NodeG", "T", 1, -1)  # seen from a Node client
    assert offsets.query("NodeG", "T", 1) is None
    assert offsets.offsets_of("NodeG", "T") == {1: -1}


def test_a_reset_is_answered_to_queries_swallows_commits_and_is_taken_once() -> None:
    offsets = OffsetTable()
    offsets.commit("G", "T", 0, 100)
    offsets.commit("G", "T", 1, 100)
    offsets.reset("G", "T", 0, 5)

    assert not offsets.commit("G", "T", 0, 101)  # from before the reset
    assert offsets.commit("G", "T", 1, 101)  # another queue
    assert offsets.query("G", "T", 0) == 5
    assert offsets.take_reset("G", "T", 0) == 5
    assert offsets.take_reset("G", "T", 0) is None
    assert offsets.query("G", "T", 0) == 5
    assert offsets.commit("G", "T", 0, 6)
    assert offsets.query("G", "T", 0) == 6


def test_a_reset_outlives_a_restart_as_an_offset() -> None:
    offsets = OffsetTable()
    offsets.commit("G", "T", 0, 100)
    offsets.reset("G", "T", 0, 5)
    again = OffsetTable()
    again.load(fastjson.loads(fastjson.dumps_pretty(offsets.to_json())))
    assert again.query("G", "T", 0) == 5


def test_topics_and_groups_with_offsets_are_listed() -> None:
    offsets = OffsetTable()
    for group, topic in (("G1", "T1"), ("G1", "T2"), ("G2", "T1")):
        offsets.commit(group, topic, 0, 1)
    assert sorted(offsets.topics_of("G1")) == ["T1", "T2"]
    assert sorted(offsets.groups_of("T1")) == ["G1", "G2"]
    assert offsets.clone("G1", "G3", "T2")
    assert not offsets.clone("G9", "G3", "T2")
    assert offsets.query("G3", "T2", 0) == 1
    offsets.commit("G1", "T2", 0, 50)
    assert offsets.query("G3", "T2", 0) == 1, "a copy, not a view"


def test_removing_a_topic_or_a_group_removes_all_of_it() -> None:
    offsets = OffsetTable()
    offsets.load({"offsetTable": {"T@G": {"0": 1}, "T@G@broadcast": {"0": 1}, "T2@G": {"0": 1}, "T@Other": {"0": 1}}})
    offsets.reset("G", "T", 1, 4)
    offsets.remove_topic("T")
    assert offsets.wrapper().offset_table == {"T2@G": {0: 1}}
    assert offsets.query("G", "T", 1) is None
    offsets.remove_group("G")
    assert offsets.is_empty()


def test_data_version_advances_every_n_commits() -> None:
    offsets = OffsetTable(version_step=3)
    for number in range(7):
        offsets.commit("G", "T", 0, number, 1000 + number)
    assert offsets.data_version.counter == 2
    assert offsets.data_version.timestamp == 1005


def test_file_format_is_compatible_with_apache() -> None:
    offsets = OffsetTable()
    offsets.commit("G", "T", 1, 7)
    offsets.commit("G", "T", 0, 5)
    offsets.pulled("G", "T", 0, 6)
    assert fastjson.dumps_pretty(offsets.to_json()).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":0\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"G":[\n\t\t\t"T"\n\t\t]\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:5,\n\t\t\t1:7\n\t\t}\n\t},\n'
        '\t"pullOffsetTable":{\n\t\t"T@G":{\n\t\t\t0:6\n\t\t}\n\t}\n}'
    )
    old = b'{\n\t"offsetTable":{"T@G":{0:250,2:250,1:250\n\t\t}\n\t}\n}'  # as 4.9.8 writes it
    again = OffsetTable()
    again.load(fastjson.loads(old))
    assert again.offsets_of("G", "T") == {0: 250, 1: 250, 2: 250}
    assert not again.dirty


def test_fast_writer_equals_the_plain_one() -> None:
    offsets = OffsetTable()
    for number in range(12):
        offsets.commit(f"G{number % 3}", f"T{number % 5}", 11 - number, number)
        offsets.pulled(f"G{number % 3}", f"T{number % 5}", number, number)
    assert fastjson.dumps_pretty(offsets.to_json()) == fastjson.dumps_pretty(offsets.wrapper().to_json())
    assert fastjson.dumps_pretty(OffsetTable().to_json()) == fastjson.dumps_pretty(OffsetTable().wrapper().to_json())


def test_a_commit_of_what_is_known_leaves_nothing_to_save() -> None:
    offsets = OffsetTable()
    offsets.commit("G", "T", 0, 5)
    assert offsets.dirty
    offsets.dirty = False
    offsets.commit("G", "T", 0, 5)
    assert not offsets.dirty


def test_broadcast_offsets_are_kept_but_not_listed() -> None:
    offsets = OffsetTable()
    offsets.load({"offsetTable": {"T@G@broadcast": {"0": 3}}})
    assert offsets.groups_of("T") == []
    assert offsets.wrapper().group_topic_map == {}
    assert offsets.wrapper().offset_table == {"T@G@broadcast": {0: 3}}
