"""The files of the timers together: timer log, wheel and checkpoint, opened, recovered and made durable.

What is believed: first the commit log, that is the queue of rmq_sys_wheel_timer; then the timer log, as far as the checkpoint
calls it durable; last the wheel. After a clean stop all of them are taken as they are. After a crash the timer log is cut at the
checkpoint's position and the wheel made again from it; the messages after that are taken from the queue once more. When files
are missing, all messages of the queue are: `replay_from_ms` says which of them had been delivered, and the checkpoint stays as
it is until that is done.

A store that never had a timer message has none of these files: `begin` makes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firearrow.store.filesystem import Disk
from firearrow.store.timer.checkpoint import TimerCheckpoint, load_timer_checkpoint, save_timer_checkpoint
from firearrow.store.timer.log import DELETE, NONE, UNIT, TimerLog
from firearrow.store.timer.wheel import TimerWheel

# An entry of the timer log, for many at once; its table is in timerlog.py.
_ENTRY = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("written", ">i8"),
        ("delayed", ">i4"),
        ("physical_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),
        ("rest", "V8"),
    ]
)
assert _ENTRY.itemsize == UNIT
_Numbers = npt.NDArray[np.int64]
_USUAL_PRECISIONS_MS = (1000, 100, 200, 250, 500, 2000, 5000, 10_000, 30_000, 60_000)


@dataclass(slots=True)
class TimerProgress:
    """Where the timers stand."""

    read_time_ms: int  # the slots before this moment are delivered
    queue_offset: int  # the messages below are in the timer log
    replay_to: int = 0  # messages below this offset were in a timer log that is lost:
    replay_from_ms: int = 0  # those due before this moment were delivered already

    @property
    def replaying(self) -> bool:
        return self.queue_offset < self.replay_to


class TopicCount(NamedTuple):
    """Entries of a topic that wait, less those that recall another one, and where in the commit log one of the messages is."""

    waiting: int
    physical_offset: int


class TimerFiles:
    """After `open`: `progress` and `problems`, which the owner reports and clears. `as_left`: a clean stop of ours wrote them."""

    def __init__(self, disk: Disk, root: str, *, precision_ms: int, segment_size: int) -> None:
        self.log = TimerLog(disk, os.path.join(root, "timerlog"), segment_size)
        self.wheel = TimerWheel(disk, os.path.join(root, "timerwheel"), precision_ms)
        self.progress = TimerProgress(0, 0)
        self.problems = self.log.problems
        self.begun = False  # whether there are files
        self.as_left = False
        self.saved = TimerCheckpoint()  # what the file says
        self._counted: dict[int, TopicCount] | None = None
        self._disk = disk
        self._root = root
        self._check_path = os.path.join(root, "config", "timercheck")
        self._check = TimerCheckpoint()

    # Beginning

    def open(self, *, clean: bool, now_ms: int, queue_offset_of: Callable[[int], int | None]) -> None:
        """Recovers what the files hold.

        `clean`: how the store was left. `queue_offset_of(physical offset)`: of a record in the timer queue, None if it is none.
        """
        check = load_timer_checkpoint(self._disk, self._check_path)
        if check is None:
            self.progress.read_time_ms = self.wheel.floor(now_ms)
            self.saved = TimerCheckpoint(self.progress.read_time_ms, timestamp_ms=now_ms)
            self.log.reset()
            if self._disk.exists(self.wheel.path):
                self.wheel.reset()
            return
        self.begun = True
        self._check = check
        wanted_ms = self.wheel.precision_ms
        self.log.load()
        self.wheel.precision_ms = check.precision_ms if check.is_ours else self._precision_found(check)
        read_time_ms = self.wheel.floor(check.read_time_ms if check.read_time_ms > 0 else now_ms - self.wheel.span_ms // 2)
        self.progress = TimerProgress(read_time_ms, max(check.queue_offset, 0))
        if not self._as_it_was_left(check, clean):
            self._recover(check, queue_offset_of)
        else:
            self.as_left = check.is_ours
        self._choose_precision(wanted_ms, now_ms)
        if self.progress.replaying:
            self.saved = check
        else:
            self._save(self.snapshot(now_ms), clean=False)

    def begin(self, now_ms: int) -> None:
        """Makes the checkpoint, before the first timer message is dealt with."""
        self._disk.mkdirs(os.path.dirname(self._check_path))
        self.begun = True
        self._save(self.snapshot(now_ms), clean=False)
        self._disk.fsync_dir(os.path.dirname(self._check_path))

    # Of a replica

    def forget(self) -> None:
        """The files here are of another master's time: the timer log is gone, and with it the checkpoint's truth."""
        self.log.reset()
        self.progress = TimerProgress(0, 0)
        self.begun = self.as_left = False
        self._counted = None

    def save_copied(self, check: TimerCheckpoint) -> None:
        """The master's checkpoint, without its timer log: whoever opens these files takes what waits from the queue again."""
        self._disk.mkdirs(os.path.dirname(self._check_path))
        position = max(check.log_position, UNIT) if check.queue_offset else check.log_position
        save_timer_checkpoint(self._disk, self._check_path, replace(check, log_position=position, precision_ms=0, clean=False))

    def _precision_found(self, check: TimerCheckpoint) -> int:
        """Apache does not say which precision its wheel has: it is the one by which the newest entry is found there."""
        wanted_ms = self.wheel.precision_ms
        newest = self.log.last_entry() if self.log.begin(check.log_position) else None
        if newest is None or not self.wheel.is_whole():
            return wanted_ms
        for precision_ms in (wanted_ms, *_USUAL_PRECISIONS_MS):
            self.wheel.precision_ms = precision_ms
            slot = self.wheel.get(newest.slot_ms)
            if slot is not None and slot.last >= newest.position:
                return precision_ms
        return wanted_ms

    def _as_it_was_left(self, check: TimerCheckpoint, clean: bool) -> bool:
        if check.is_ours:
            clean = check.clean
        if not clean or not self.wheel.is_whole() or not self.log.begin(check.log_position):
            return False
        return not self.log.has_entry_at(check.log_position)

    def _recover(self, check: TimerCheckpoint, queue_offset_of: Callable[[int], int | None]) -> None:
        progress = self.progress
        if not self.log.begin(check.log_position):
            self.problems.append(
                f"the timer log ends at {self.log.end} instead of {check.log_position}; it is made again from the timer queue"
            )
            self.log.reset(behind=check.log_position)
            self.wheel.reset()
            self._counted = {}
            progress.replay_to, progress.replay_from_ms = progress.queue_offset, progress.read_time_ms
            progress.queue_offset = 0
            return
        self.log.truncate(check.log_position)
        self.wheel.reset()
        self._link_slots(progress.read_time_ms)
        if not check.is_ours:
            # Apache's two numbers are not of the same instant: the queue offset may be ahead.
            last = self.log.last_entry()
            logged = queue_offset_of(last.physical_offset) if last is not None else -1
            if logged is not None:
                progress.queue_offset = min(progress.queue_offset, logged + 1)

    def _link_slots(self, from_ms: int) -> None:
        """Makes the wheel from the timer log, for the moments that are not over."""
        self._counted = {}
        for positions, entries, times in self._waiting_runs(from_ms):
            self._count(entries)
            counts = np.where(entries["magic"] & DELETE, -1, 1)
            slots, first, inverse = np.unique(times, return_index=True, return_inverse=True)
            last = np.zeros(len(slots), np.int64)
            np.maximum.at(last, inverse, positions)
            sums = np.bincount(inverse, counts, len(slots)).astype(np.int64)
            rows = zip(slots.tolist(), positions[first].tolist(), last.tolist(), sums.tolist(), strict=True)
            for time_ms, first_position, last_position, count in rows:
                slot = self.wheel.get(time_ms)
                known = (first_position, 0) if slot is None else (slot.first, slot.waiting)
                self.wheel.put(time_ms, known[0], last_position, known[1] + count)

    def count_waiting(self) -> dict[int, TopicCount]:
        """What waits, by the hash code of its topic. After `open`, before anything is entered."""
        if self._counted is None:
            self._counted = {}
            for _, entries, _ in self._waiting_runs(self.progress.read_time_ms):
                self._count(entries)
        return self._counted

    def _waiting_runs(self, from_ms: int) -> Iterator[tuple[_Numbers, npt.NDArray[Any], _Numbers]]:
        """What waits in the timer log, many at once: positions, entries, the times of their slots.

        A clean stop may have begun the chain of the first slot anew (an entry without one before it): only what is in the newest
        chain waits.
        """
        first_slot: list[tuple[_Numbers, npt.NDArray[Any]]] = []
        for position, data in self.log.runs():
            entries = np.frombuffer(data, _ENTRY)
            times = entries["written"].astype(np.int64) + entries["delayed"]
            times -= times % self.wheel.precision_ms
            whole = entries["size"] == UNIT
            later = np.flatnonzero(whole & (times > from_ms))
            if len(later):
                yield position + later * UNIT, entries[later], times[later]
            chosen = np.flatnonzero(whole & (times == from_ms))
            begins = np.flatnonzero(entries["previous"][chosen] == NONE)
            if len(begins):
                first_slot.clear()
                chosen = chosen[begins[-1] :]
            if len(chosen):
                first_slot.append((position + chosen * UNIT, entries[chosen]))
        for positions, entries in first_slot:
            yield positions, entries, np.full(len(positions), from_ms)

    def _count(self, entries: npt.NDArray[Any]) -> None:
        assert self._counted is not None
        hashes, first, inverse = np.unique(entries["topic_hash"], return_index=True, return_inverse=True)
        sums = np.bincount(inverse, np.where(entries["magic"] & DELETE, -1, 1), len(hashes)).astype(np.int64)
        for topic_hash, at, count in zip(hashes.tolist(), first.tolist(), sums.tolist(), strict=True):
            known = self._counted.get(topic_hash, TopicCount(0, int(entries["physical_offset"][at])))
            self._counted[topic_hash] = TopicCount(known.waiting + count, known.physical_offset)

    def _choose_precision(self, wanted_ms: int, now_ms: int) -> None:
        """Another precision can only begin with an empty wheel: the moments of waiting messages are multiples of the old one."""
        kept_ms = self.wheel.precision_ms
        if wanted_ms == kept_ms:
            return
        read_ms = self.progress.read_time_ms
        if self.wheel.next_used(read_ms, read_ms + self.wheel.span_ms) is not None:
            self.problems.append(
                f"timerPrecisionMs is {wanted_ms}, but messages are waiting in a wheel of {kept_ms} ms; "
                f"it stays {kept_ms} until the broker is started when none waits"
            )
            return
        self.wheel.precision_ms = wanted_ms
        self.wheel.reset()
        self.progress.read_time_ms = self.wheel.floor(max(read_ms, now_ms))

    # Going on

    def snapshot(self, now_ms: int, *, before: tuple[int, int] | None = None) -> TimerCheckpoint:
        """What the checkpoint has to say now. The wheel's changes are written; `save` makes them durable.

        `before`: position and queue offset of an entry; it and those behind it are not spoken of.
        """
        self.wheel.flush()
        progress, check = self.progress, self._check
        position, queue_offset = before or (self.log.end, progress.queue_offset)
        self._check = TimerCheckpoint(
            progress.read_time_ms,
            position,
            queue_offset,
            queue_offset,
            check.state_version,
            now_ms,
            check.counter + 1,
            self.wheel.precision_ms,
        )
        return self._check

    def saver(self, check: TimerCheckpoint, *, clean: bool = False) -> Callable[[], None]:
        """A job for the housekeeper: makes log and wheel durable, then the checkpoint that speaks of them."""
        written = self.log.take_unsynced()

        def save() -> None:
            for segment in written:
                segment.file.fdatasync()
            self.wheel.sync()
            self._save(check, clean=clean)

        return save

    def expire(self, log_min: int) -> Callable[[], None] | None:
        """A job that deletes timer-log files whose messages are gone from the commit log; None when there are none."""
        paths = self.log.remove_before(log_min)

        def delete() -> None:
            for path in paths:
                self._disk.unlink(path)

        return delete if paths else None

    def close(self) -> None:
        self.log.close()
        self.wheel.close()

    def _save(self, check: TimerCheckpoint, *, clean: bool) -> None:
        check.clean = clean
        check.precision_ms = self.wheel.precision_ms
        save_timer_checkpoint(self._disk, self._check_path, check)
        self.saved = check
