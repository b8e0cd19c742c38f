"""Delay levels under a clock that the test turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.deferred.delay_levels import MAX_PER_TICK, DelayService
from firearrow.broker.message import PREPARED, BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.wire import properties
from firearrow.wire.java_hash import tags_code
from firearrow.wire.message_ids import host_bytes
from firearrow.wire.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from firearrow.wire.record import Record, decode_all
from tests.broker.kit import T0, Kit

HOUR_MS = 3_600_000
BORN = host_bytes("10.1.2.3", 4567)


class Story:
    """A store and a delay service; `at` moves the clock and lets what is due go out."""

    def __init__(self, root: Path, levels: str = "1s 5s 10s 2h") -> None:
        self.kit = Kit(root, message_delay_level=levels)
        self.store, self.inner = self.kit.store, self.kit.context.writer
        self.delay = self.kit.delay

    def put(self, body: bytes, *, at_ms: int, sys_flag: int = 0, **names: Any) -> None:
        """A client's message."""
        self.delay.check(self.message(b"", sys_flag, internal=False, **names), at_ms)
        self.put_inner(body, at_ms=at_ms, sys_flag=sys_flag, **names)

    def put_inner(self, body: bytes, *, at_ms: int, sys_flag: int = 0, **names: Any) -> None:
        """A message that the broker itself stores."""
        self.kit.context.deferral.put(self.message(body, sys_flag, **names), at_ms)
        self.end_round()

    def message(self, body: bytes, sys_flag: int = 0, *, internal: bool = True, **names: str) -> BrokerMessage:
        raw = properties.encode(names)
        return BrokerMessage("Orders", 2, body, raw, 7, sys_flag, T0 - 5, BORN, reconsume_times=3, internal=internal)

    def at(self, now_ms: int) -> list[bytes]:
        """Return all messages delivered by then."""
        while self.delay.tick(now_ms):
            self.end_round()
        self.end_round()
        return [record.body for record in self.delivered()]

    def end_round(self) -> None:
        self.store.write_out()
        self.store.confirm(self.store.max_offset)

    def delivered(self) -> list[Record]:
        return self.messages("Orders", 2)

    def messages(self, topic: str, queue_id: int) -> list[Record]:
        queue = self.store.queue(topic, queue_id)
        found: list[Record] = []
        while (result := self.store.get_messages(queue, len(found), 32)).count:
            found += decode_all(result.body)
        return found


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    told = Story(tmp_path)
    yield told
    told.kit.close()


def test_a_message_is_delivered_when_it_is_due_and_not_a_millisecond_before(story: Story) -> None:
    story.put(b"later", at_ms=T0, DELAY="2")
    assert story.at(T0 + 4_999) == []
    assert story.delay.next_due_ms() == T0 + 5_000
    assert story.at(T0 + 5_000) == [b"later"]
    assert story.at(T0 + HOUR_MS) == [b"later"]
    assert story.delay.next_due_ms() is None


def test_levels_do_not_wait_for_each_other(story: Story) -> None:
    story.put(b"two hours", at_ms=T0, DELAY="4")
    story.put(b"ten seconds", at_ms=T0 + 1, DELAY="3")
    story.put(b"one second", at_ms=T0 + 2, DELAY="1")
    story.put(b"at once", at_ms=T0 + 3)
    assert story.at(T0 + 3) == [b"at once"]
    assert story.at(T0 + 20_000) == [b"at once", b"one second", b"ten seconds"]
    assert story.at(T0 + 2 * HOUR_MS) == [b"at once", b"one second", b"ten seconds", b"two hours"]


def test_held_message_has_apaches_format_and_is_delivered_unchanged(story: Story) -> None:
    story.put(b"x", at_ms=T0, DELAY="1", TAGS="new", KEYS="k", UNIQ_KEY="U")
    (waiting,) = story.messages(SCHEDULE_TOPIC, 0)
    queue = story.store.queue(SCHEDULE_TOPIC, 0)
    assert queue.entry(0) == (waiting.physical_offset, waiting.total_size, T0 + 1_000)
    names = {"DELAY": "1", "TAGS": "new", "KEYS": "k", "UNIQ_KEY": "U", "REAL_TOPIC": "Orders", "REAL_QID": "2"}
    assert properties.parse(waiting.properties) == names

    story.at(T0 + 1_000)
    (record,) = story.delivered()
    assert properties.parse(record.properties) == names
    assert (record.body, record.flag, record.reconsume_times) == (b"x", 7, 3)
    assert (record.born_timestamp, record.born_host, record.store_timestamp) == (T0 - 5, BORN, T0 + 1_000)
    entry = story.store.queue("Orders", 2).entry(0)
    assert entry is not None
    assert entry[2] == tags_code("new")


@pytest.mark.parametrize("level", ["5", "99", "+99", "2147483647", "0000000000000000000000005"])
def test_a_level_above_the_highest_is_the_highest(story: Story, level: str) -> None:
    story.put(b"x", at_ms=T0, DELAY=level)
    assert properties.parse(story.messages(SCHEDULE_TOPIC, 3)[0].properties)["DELAY"] == "4"
    assert story.at(T0 + 2 * HOUR_MS) == [b"x"]


@pytest.mark.parametrize("level", ["0", "-1", "-0", "-2147483648"])
def test_below_the_first_level_nothing_is_delayed(story: Story, level: str) -> None:
    story.put(b"x", at_ms=T0, DELAY=level)
    assert story.at(T0) == [b"x"]


@pytest.mark.parametrize("level", ["soon", " 1", "1 ", "1.0", "0x1", "+", "-", "2147483648", "-2147483649", "9" * 400, "\u0661"])
def test_malformed_level_is_rejected_from_clients_and_ignored_internally(story: Story, level: str) -> None:
    with pytest.raises(Refused, match=r"the delay level DELAY is .*; expected a whole number, 1 to 4") as refused:
        story.put(b"x", at_ms=T0, DELAY=level)
    assert refused.value.code == 1
    assert story.store.appended_offset == 0
    story.put_inner(b"x", at_ms=T0, DELAY=level)
    assert story.at(T0) == [b"x"]


def test_a_half_message_is_not_delayed(story: Story) -> None:
    story.put(b"half", at_ms=T0, sys_flag=PREPARED, DELAY="1")
    assert story.messages(SCHEDULE_TOPIC, 0) == []


def test_a_clock_that_was_set_back_does_not_hold_messages_longer_than_their_delay(story: Story) -> None:
    story.put(b"x", at_ms=T0 + HOUR_MS, DELAY="2")
    assert story.at(T0) == [b"x"]


def test_restart_continues_at_the_saved_offset(story: Story) -> None:
    for number in range(3):
        story.put(b"%d" % number, at_ms=T0 + number * 100, DELAY="1")
    assert story.at(T0 + 1_100) == [b"0", b"1"]
    assert story.delay.has_changed()
    saved = story.delay.to_json(T0 + 1_100)
    assert saved["offsetTable"] == {1: 2}
    assert not story.delay.has_changed()

    again = DelayService([1_000, 5_000, 10_000, 2 * HOUR_MS], story.store, story.inner)
    again.load({"offsetTable": {"1": 2, "77": 5, "x": 1}})
    story.delay = again
    assert story.at(T0 + 5_000) == [b"0", b"1", b"2"]


def test_deliveries_after_the_saved_offset_are_found_in_the_log_and_not_repeated(story: Story) -> None:
    """As after a kill or an election: the saved offsets are behind."""
    story.put(b"not held", at_ms=T0)
    bodies = [b"%d" % number for number in range(600)]
    for number, body in enumerate(bodies):
        story.put(body, at_ms=T0 + number, DELAY="1", UNIQ_KEY=f"U{number}")
    story.put(b"other level", at_ms=T0 + 600, DELAY="3")
    assert story.at(T0 + 1_399) == [b"not held", *bodies[:400]]

    again = DelayService([1_000, 5_000, 10_000, 2 * HOUR_MS], story.store, story.inner)
    again.load({"offsetTable": {"1": 7}})
    again.resume()
    story.delay = again
    assert again.offsets() == [400, 0, 0, 0]
    assert again.has_changed()
    assert story.at(T0 + HOUR_MS) == [b"not held", *bodies, b"other level"]


def test_resuming_without_deliveries_keeps_the_saved_offsets(story: Story) -> None:
    story.put(b"not held", at_ms=T0)
    story.put(b"held", at_ms=T0, DELAY="1")
    story.put(b"later", at_ms=T0 + 5_000)
    story.delay.resume()
    assert story.delay.offsets() == [0, 0, 0, 0]
    assert story.at(T0 + 5_000) == [b"not held", b"later", b"held"]


def test_many_due_messages_are_delivered_in_batches(story: Story) -> None:
    for number in range(MAX_PER_TICK + 10):
        story.kit.context.deferral.put(story.message(b"%d" % number, DELAY="1"), T0)
    story.end_round()
    assert story.delay.tick(T0 + 1_000)
    story.end_round()
    assert len(story.delivered()) == MAX_PER_TICK
    assert not story.delay.tick(T0 + 1_000)
    story.end_round()
    assert [record.body for record in story.delivered()] == [b"%d" % number for number in range(MAX_PER_TICK + 10)]


@pytest.mark.parametrize(
    ("names", "born_host"),
    [
        (b"REAL_QID\x012\x02DELAY\x011\x02REAL_TOPIC\x01Orders\x02TAGS\x01new", BORN),  # in any order, as another broker writes
        (b"TAGS\x01new\x02DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x012", BORN),
        (b"REAL_TOPIC\x01Orders\x02REAL_QID\x012\x02TAGS\x01new\x02", BORN),
        (b"TAGS\x01new\x02DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x012\x02", host_bytes("fe80::1", 4567)),
    ],
)
def test_records_of_unusual_layout_are_delivered(story: Story, names: bytes, born_host: bytes) -> None:
    queue = story.store.queue(SCHEDULE_TOPIC, 0)
    story.put(b"before", at_ms=T0, DELAY="1", TAGS="new")
    story.store.append(
        queue, b"x", names, T0 + 1_000, flag=7, sys_flag=0, born_ms=T0 - 5, born_host=born_host, store_ms=T0, reconsume_times=3
    )
    story.put(b"behind", at_ms=T0, DELAY="1", TAGS="new")
    assert story.at(T0 + 1_000) == [b"before", b"x", b"behind"]
    before, other, _ = story.delivered()
    assert other.born_host == born_host
    assert (other.flag, other.reconsume_times, other.born_timestamp, other.store_timestamp) == (
        before.flag, before.reconsume_times, before.born_timestamp, T0 + 1_000,
    )  # fmt: skip
    entry = story.store.queue("Orders", 2).entry(1)
    assert entry is not None
    assert entry[2] == tags_code("new")


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (88, "the body"),
        (87, "its length"),
        (110, "the length of the properties"),
        (4, "the magic"),
        (35, "its place"),
    ],
)
def test_corrupt_record_is_skipped_and_its_neighbours_are_delivered(story: Story, at: int, what: str) -> None:
    for body in (b"before", b"x", b"behind"):
        story.put(body, at_ms=T0, DELAY="1")
    damaged = story.messages(SCHEDULE_TOPIC, 0)[1]
    path = Path(story.store.settings.commit_log_dir) / f"{0:020d}"
    with path.open("r+b") as log:
        log.seek(damaged.physical_offset + at)
        (before,) = log.read(1)
        log.seek(-1, 1)
        log.write(bytes((before ^ 0x40,)))
    assert story.at(T0 + 1_000) == [b"before", b"behind"], what


@pytest.mark.parametrize("bound", ["REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02", "REAL_QID\x010\x02", ""])
def test_undeliverable_record_does_not_block_others(story: Story, bound: str) -> None:
    queue = story.store.queue(SCHEDULE_TOPIC, 0)
    names = b"DELAY\x011\x02" + bound.encode()
    story.store.append(queue, b"x", names, T0 + 1_000, flag=0, sys_flag=0, born_ms=T0, born_host=BORN, store_ms=T0)
    story.put(b"behind", at_ms=T0, DELAY="1")
    assert story.at(T0 + 1_000) == [b"behind"]
    assert not story.messages(TRANS_HALF_TOPIC, 0)
