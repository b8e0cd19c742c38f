"""The saved deduplication state: when it is written, and how it is restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.dedup.snapshot import FILE, records
from tests.broker.dedup.test_dedup import Story, numbered, refused
from tests.broker.kit import T0


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    told = Story(tmp_path)
    yield told
    told.kit.close()


def test_state_is_restored_after_a_kill(tmp_path: Path) -> None:
    story = Story(tmp_path, idempotent_producer_window=8)
    first = [story.send(number, b"%d" % number) for number in range(30)]
    delayed = story.send(500, b"later", DELAY="2")
    story.save()
    first += [story.send(number, b"%d" % number) for number in range(30, 34)]
    story.send_batch((b"34", numbered(34)))
    other = story.send(1, b"other", producer="q", queue=1)
    for name, keep_file in (("with", True), ("without", False)):
        again = story.reopened(name, keep_file=keep_file)
        assert [again.send(number) for number in range(28, 34)] == first[28:]
        assert again.send(500, b"later", DELAY="2") == delayed
        assert again.send(1, producer="q", queue=1) == other
        refused(again.send, 5)
        assert len(again.stored()) == 35
        again.send(35, b"35")
        assert again.stored()[-1] == b"35"
        again.kit.close()
    story.kit.close()


def test_without_a_file_more_than_the_newest_segment_is_read(tmp_path: Path) -> None:
    """The log begins a new file, and in the next moment the broker is killed."""
    story = Story(tmp_path)
    first = [story.send(number, b"x" * 100_000) for number in range(11)]
    assert story.store.max_offset % story.store.settings.mapped_file_size_commit_log < 200_000, "the last begins a file"
    again = story.reopened("again", keep_file=False)
    assert [again.send(number) for number in range(11)] == first
    again.kit.close()
    story.kit.close()


def test_first_producer_is_saved_at_once(story: Story) -> None:
    story.file.tick(T0)
    story.send(1)
    story.file.tick(T0 + 100)
    assert story.config.load(FILE)["logOffset"] == story.store.flushed_offset
    story.send(2)
    story.file.tick(T0 + 200)
    assert story.config.load(FILE)["logOffset"] < story.store.flushed_offset


def test_corrupt_file_is_rebuilt_from_the_log(story: Story) -> None:
    first = story.send(1, b"x")
    story.save()
    story.send(2, b"y")
    story.save()
    for text in (
        '{"logOffset": 3, "producers": [{"producer": 1}]}',
        '{"logOffset": "x"}',
        "{}",
        '{"logOffset": 0, "producers": 7}',
    ):
        story.config.save_text(FILE, text.encode())
        again = story.reopened(f"again{len(text)}")
        assert again.send(1) == first
        assert again.stored() == [b"x", b"y"]
        again.kit.close()


def test_file_is_never_ahead_of_the_durable_log(story: Story) -> None:
    names: dict[str, Any] = {"__PRODUCER_ID": "p", "__PRODUCER_SEQ": "1"}
    story.send(0)
    story.save()
    story.start(b"x", **names)
    story.store.confirm(0)
    story.file.note()
    story.file.save()
    assert "producers" in story.config.load(FILE)
    saved = story.config.load(FILE)["logOffset"]
    assert saved < story.store.appended_offset
    story.end_round()
    story.file.save()
    assert story.config.load(FILE)["logOffset"] == story.store.flushed_offset


def test_broker_without_idempotent_producers_writes_no_file(story: Story) -> None:
    for number in range(100):
        story.send(None, b"%d" % number)
    for tick in range(300):
        story.file.tick(T0 + tick * 100)
    assert story.config.load(FILE) == {}


def test_marked_records_are_found_among_others(story: Story) -> None:
    story.send(None, b"plain")
    story.send(1, b"numbered")
    story.send(None, b"plain again")
    assert [record.body for record in records(story.store, 0, b"__PRODUCER_ID\x01")] == [b"numbered"]
    assert [record.body for record in records(story.store, 0, None)] == [b"plain", b"numbered", b"plain again"]
