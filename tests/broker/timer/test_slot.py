"""The open slot: messages come in order of their delivery time, except those recalled or lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.broker.timer.slot import OpenSlot
from firearrow.store.filesystem import RealDisk
from firearrow.store.timer.log import DELETE, MAGIC, NONE, ROLL, TimerEntry, TimerLog
from firearrow.wire import properties
from firearrow.wire.names import TIMER_TOPIC
from tests.broker.timing import BORN, SECOND, T0, Timing


class SlotKit:
    """A slot at T0 whose records are in a real commit log and whose entries are in a real timer log."""

    def __init__(self, root: Path) -> None:
        self.timing = Timing(root / "store")
        self.log = TimerLog(RealDisk(), str(root / "timerlog"), 8192)
        self.last = NONE
        self.dequeued: list[int] = []

    def put(self, body: bytes, magic: int = 0, **names: str) -> int:
        """Store a held message with its entry at the end of the chain; return the entry's position."""
        store = self.timing.store
        offset = store.append(
            store.queue(TIMER_TOPIC, 0),
            body,
            properties.encode({"TIMER_OUT_MS": str(T0), "REAL_TOPIC": "Orders"} | names),
            0,
            flag=0,
            sys_flag=0,
            born_ms=T0,
            born_host=BORN,
            store_ms=T0,
        )
        size = store.appended_offset - offset
        self.timing.end_round()
        return self.chain(offset, size, magic)

    def chain(self, offset: int, size: int, magic: int = 0) -> int:
        self.last = self.log.append(self.last, MAGIC | magic, T0 - SECOND, SECOND, offset, size, 0)
        self.log.write_out()
        return self.last

    def opened(self) -> OpenSlot:
        return OpenSlot(T0, self.last, self.log, self.timing.store, SECOND, self._count)

    def _count(self, entry: TimerEntry) -> None:
        self.dequeued.append(entry.position)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[SlotKit]:
    made = SlotKit(tmp_path)
    yield made
    made.timing.store.close()


def prepare_all(slot: OpenSlot) -> None:
    while slot.prepare(1000) != 1000:
        pass


def taken(slot: OpenSlot, now_ms: int) -> list[bytes]:
    found = []
    while (one := slot.take(now_ms)) is not None:
        message = one[1].message("Orders", 0)
        assert message is not None
        found.append(message.body)
    return found


def test_messages_are_taken_in_order_of_their_delivery_time(kit: SlotKit) -> None:
    for delay_ms in (700, 200, 500):
        kit.put(b"%d" % delay_ms, TIMER_DELIVER_MS=str(T0 + delay_ms))
    slot = kit.opened()
    prepare_all(slot)
    assert (slot.held, slot.next_due_ms, slot.all_read) == (3, T0 + 200, True)
    assert taken(slot, T0 + 199) == []
    assert taken(slot, T0 + 500) == [b"200", b"500"]
    assert not slot.empty
    assert taken(slot, T0 + 700) == [b"700"]
    assert slot.empty


def test_message_added_to_the_open_slot_is_taken_too(kit: SlotKit) -> None:
    slot = kit.opened()
    assert (slot.used, slot.empty) == (False, True)
    slot.add(kit.put(b"new", TIMER_DELIVER_MS=str(T0 + 300)))
    prepare_all(slot)
    assert taken(slot, T0 + 300) == [b"new"]
    assert slot.used


@pytest.mark.parametrize("marker_first", [True, False])
def test_recalled_message_is_dequeued_and_not_taken(kit: SlotKit, marker_first: bool) -> None:
    def mark() -> None:
        kit.put(b"", DELETE, TIMER_DEL_UNIQKEY="U1")

    if marker_first:
        mark()
    kit.put(b"recalled", UNIQ_KEY="U1")
    kit.put(b"kept", UNIQ_KEY="U2")
    if not marker_first:
        mark()
    slot = kit.opened()
    prepare_all(slot)
    assert taken(slot, T0 + SECOND) == [b"kept"]
    assert len(kit.dequeued) == 3
    assert len(slot.processed_markers) == 1


def test_rolled_message_is_due_at_the_start_of_the_slot(kit: SlotKit) -> None:
    kit.put(b"rolled", ROLL, TIMER_OUT_MS=str(T0 + 60 * SECOND))
    slot = kit.opened()
    prepare_all(slot)
    assert taken(slot, T0) == [b"rolled"]


def test_missing_record_is_counted_as_lost(kit: SlotKit) -> None:
    kit.put(b"kept")
    kit.chain(kit.timing.store.max_offset + 4096, 200)
    slot = kit.opened()
    prepare_all(slot)
    assert slot.lost == 1
    assert taken(slot, T0 + SECOND) == [b"kept"]


def test_remaining_entries_are_those_not_taken(kit: SlotKit) -> None:
    kit.put(b"first", TIMER_DELIVER_MS=str(T0 + 100))
    second = kit.put(b"second", TIMER_DELIVER_MS=str(T0 + 900))
    slot = kit.opened()
    assert len(slot.remaining()) == 2
    prepare_all(slot)
    assert taken(slot, T0 + 100) == [b"first"]
    assert [entry.position for entry in slot.remaining()] == [second]
    assert taken(slot, T0 + 900) == [b"second"]
    assert slot.remaining() == []
