"""The timer files as a whole: timer log, wheel and checkpoint, with recovery and durability.

The commit log, that is the queue of rmq_sys_wheel_timer, is authoritative, then the timer log up to the checkpoint's position,
last the wheel. After a clean stop all files are used as they are. After a crash the timer log is truncated at the checkpoint's
position and the wheel is rebuilt from it; later messages are read from the queue again. If files are missing, all messages of the
queue are read again: `replay_from_ms` tells which of them were already delivered, and the checkpoint is not changed until that is
done.

A store that never had a timer message has none of these files; `begin` creates them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firearrow.store.filesystem import Disk
from firearrow.store.timer.checkpoint import TimerCheckpoint, load_timer_checkpoint, save_timer_checkpoint
from firearrow.store.timer.log import DELETE, NONE, UNIT, TimerLog
from firearrow.store.timer.wheel import TimerWheel

# An entry of the timer log (timer/log.py), for numpy.
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
    """Progress of timer delivery."""

    read_time_ms: int  # slots before this time are delivered
    queue_offset: int  # messages below are in the timer log
    replay_to: int = 0  # messages below this offset were in a lost timer log
    replay_from_ms: int = 0  # those due before this time are delivered

    @property
    def replaying(self) -> bool:
        return self.queue_offset < self.replay_to


class TopicCount(NamedTuple):
    """Pending entries of a topic, minus those that recall another one, and the log offset of one of the messages."""

    waiting: int
    physical_offset: int


class TimerFiles:
    """Timer log, wheel and checkpoint.

    The owner reports and clears `problems`. `as_left`: the files were written by a clean stop of a Firearrow broker.
    """

    def __init__(self, disk: Disk, root: str, *, precision_ms: int, segment_size: int) -> None:
        self.log = TimerLog(disk, os.path.join(root, "timerlog"), segment_size)
        self.wheel = TimerWheel(disk, os.path.join(root, "timerwheel"), precision_ms)
        self.progress = TimerProgress(0, 0)
        self.problems = self.log.problems
        self.begun = False  # whether the files exist
        self.as_left = False
        self.saved = TimerCheckpoint()  # content of the checkpoint file
        self._counted: dict[int, TopicCount] | None = None
        self._disk = disk
        self._root = root
        self._check_path = os.path.join(root, "config", "timercheck")
        self._check = TimerCheckpoint()

    # Opening

    def open(self, *, clean: bool, now_ms: int, queue_offset_of: Callable[[int], int | None]) -> None:
        """Load and recover the files.

        `clean`: the last stop of the store was clean. `queue_offset_of` returns the queue offset of a record of the timer queue
        by its physical offset, None for other records.
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
        """Create the checkpoint, before the first timer message is handled."""
        self._disk.mkdirs(os.path.dirname(self._check_path))
        self.begun = True
        self._save(self.snapshot(now_ms), clean=False)
        self._disk.fsync_dir(os.path.dirname(self._check_path))

    # On a replica

    def discard(self) -> None:
        """Delete the timer log, which belongs to a previous master, and invalidate the checkpoint."""
        self.log.reset()
        self.progress = TimerProgress(0, 0)
        self.begun = self.as_left = False
        self._counted = None

    def save_copied(self, check: TimerCheckpoint) -> None:
        """Save the master's checkpoint without its timer log: opening the files reads pending messages from the queue."""
        self._disk.mkdirs(os.path.dirname(self._check_path))
        position = max(check.log_position, UNIT) if check.queue_offset else check.log_position
        save_timer_checkpoint(
            self._disk, self._check_path, replace(check, log_position=position, precision_ms=0, clean=False, copied=True)
        )

    def _precision_found(self, check: TimerCheckpoint) -> int:
        """Return the precision of a wheel written by Apache, which does not record it, by searching for the newest entry."""
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
            if not check.copied:
                self.problems.append(
                    f"the timer log ends at {self.log.end} instead of {check.log_position}; it is rebuilt from the timer queue"
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
            # Apache does not record the two numbers at the same time: the queue offset may be ahead.
            last = self.log.last_entry()
            logged = queue_offset_of(last.physical_offset) if last is not None else -1
            if logged is not None:
                progress.queue_offset = min(progress.queue_offset, logged + 1)

    def _link_slots(self, from_ms: int) -> None:
        """Rebuild the wheel from the timer log, for times that are not over."""
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
        """Count the pending messages by the hash code of their topics. Call after `open`, before entries are added."""
        if self._counted is None:
            self._counted = {}
            for _, entries, _ in self._waiting_runs(self.progress.read_time_ms):
                self._count(entries)
        return self._counted

    def _waiting_runs(self, from_ms: int) -> Iterator[tuple[_Numbers, npt.NDArray[Any], _Numbers]]:
        """Yield positions, entries and slot times of the pending entries in the timer log, many at once.

        A clean stop may have restarted the chain of the first slot (an entry without a previous one): only the newest chain is
        pending.
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
        """Change the precision if the wheel is empty: the times of pending messages are multiples of the old precision."""
        kept_ms = self.wheel.precision_ms
        if wanted_ms == kept_ms:
            return
        read_ms = self.progress.read_time_ms
        if self.wheel.next_used(read_ms, read_ms + self.wheel.span_ms) is not None:
            self.problems.append(
                f"timerPrecisionMs is {wanted_ms}, but messages are pending in a wheel of {kept_ms} ms; "
                f"it stays {kept_ms} until the broker is restarted with none pending"
            )
            return
        self.wheel.precision_ms = wanted_ms
        self.wheel.reset()
        self.progress.read_time_ms = self.wheel.floor(max(read_ms, now_ms))

    # Saving

    def snapshot(self, now_ms: int, *, before: tuple[int, int] | None = None) -> TimerCheckpoint:
        """Write the changes of the wheel and return the values of the next checkpoint. `saver` makes them durable.

        `before`: position and queue offset of an entry; it and later ones are left out.
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
        """Return a job for the housekeeper that makes log and wheel durable, then saves the checkpoint."""
        written = self.log.take_unsynced()

        def save() -> None:
            for segment in written:
                segment.file.fdatasync()
            self.wheel.sync()
            self._save(check, clean=clean)

        return save

    def expire(self, log_min: int) -> Callable[[], None] | None:
        """Return a job that deletes timer-log files whose messages are deleted from the commit log, or None."""
        paths, resets = self.log.remove_before(log_min), self.log.resets

        def delete() -> None:
            for path in paths:
                if self.log.resets == resets:  # otherwise it is deleted, and a new file may have its name
                    with suppress(FileNotFoundError):
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
