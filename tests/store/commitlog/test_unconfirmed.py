"""Unconfirmed groups: confirming, dropping, and errors of derived files."""

from __future__ import annotations

from typing import Any

from firearrow.store.commitlog.log import AppendGroup
from firearrow.store.commitlog.unconfirmed import UnconfirmedGroups
from firearrow.store.consume_queue import ENTRY, UNIT, ConsumeQueue, QueueFiles
from tests.store.simdisk import SimulatedDisk


class Reader:
    confirm_offset = 0


class Dispatcher:
    """Records confirmed groups; fails if `error` is set."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.error: OSError | None = None

    def confirmed(self, group: AppendGroup) -> None:
        if self.error is not None:
            raise self.error
        self.ends.append(group.end_offset)


class Log:
    """Unconfirmed groups in front of a recording dispatcher."""

    def __init__(self) -> None:
        files = QueueFiles(SimulatedDisk(), "/q", 10 * UNIT)
        self.a = ConsumeQueue("A", 0, files)
        self.b = ConsumeQueue("B", 0, files)
        self.dispatcher = Dispatcher()
        self.errors: list[OSError] = []
        reader: Any = Reader()
        dispatcher: Any = self.dispatcher
        self.groups = UnconfirmedGroups(reader, dispatcher, self.errors.append)

    def add(self, end: int, *queues: ConsumeQueue) -> None:
        """Add a group with one message for each of the queues."""
        touched = {queue: queue.extend(ENTRY.pack(end - 10, 10, 0), 1) for queue in queues}
        self.groups.add(AppendGroup(end, end * 1000, touched, []))


def test_only_whole_groups_up_to_the_offset_become_visible() -> None:
    log = Log()
    log.add(10, log.a)
    log.add(20, log.a, log.b)
    log.add(30, log.b)
    assert log.groups.confirm(29) == [(log.a, 0, 1), (log.a, 1, 2), (log.b, 0, 1)]
    assert (log.a.max_offset, log.b.max_offset, log.b.next_offset) == (2, 1, 2)
    assert (log.groups.confirm_offset, log.groups.confirmed_ms, log.groups.end_offset) == (20, 20_000, 30)
    assert log.dispatcher.ends == [10, 20]


def test_confirming_the_same_offset_again_makes_nothing_visible() -> None:
    log = Log()
    log.add(10, log.a)
    log.groups.confirm(10)
    assert log.groups.confirm(10) == []
    assert log.groups.end_offset == 10


def test_begin_sets_the_confirmed_end_of_an_empty_list() -> None:
    log = Log()
    log.groups.begin(500, 7)
    assert (log.groups.confirm_offset, log.groups.end_offset, log.groups.confirmed_ms) == (500, 500, 7)


def test_queues_of_dropped_groups_continue_behind_the_groups_that_remain() -> None:
    log = Log()
    log.add(10, log.a, log.b)
    log.groups.confirm(10)
    log.add(20, log.a)
    log.add(30, log.a)
    log.add(40, log.a, log.b)
    log.add(50, log.b)
    log.groups.drop_above(30)
    assert log.groups.end_offset == 30
    assert (log.a.next_offset, log.b.next_offset) == (3, 1)
    assert log.groups.confirm(50) == [(log.a, 1, 2), (log.a, 2, 3)]


def test_group_stays_confirmed_if_its_derived_files_cannot_be_written() -> None:
    log = Log()
    log.add(10, log.a)
    log.dispatcher.error = OSError(28, "no space left")
    assert log.groups.confirm(10) == [(log.a, 0, 1)]
    assert log.errors == [log.dispatcher.error]
    assert log.groups.confirm_offset == 10
