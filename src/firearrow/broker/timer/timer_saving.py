"""How far the timers are, written down: now and then while they run, and at a clean stop.

The checkpoint may only say what is durable: otherwise a power cut could lose what it calls delivered. So it is noted first, with
where the commit log ended then, and written once the log is durable up to there.
"""

from __future__ import annotations

from firearrow.broker.settings import BrokerSettings
from firearrow.broker.timer.metrics import TimerMetrics
from firearrow.broker.timer.slot import OpenSlot
from firearrow.store.message_store import MessageStore
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.store.timer.files import TimerFiles
from firearrow.store.timer.log import DELETE, NONE, delay_field


class TimerCheckpointer:
    """`changed`: there is something to say since the last note. `busy`: a checkpoint is being written."""

    def __init__(self, store: MessageStore, files: TimerFiles, metrics: TimerMetrics, settings: BrokerSettings) -> None:
        self.changed = False
        self.busy = False
        self._store = store
        self._files = files
        self._metrics = metrics
        self._settings = settings
        self._note: tuple[int, TimerCheckpoint] | None = None  # log offset that must be durable first, what is said then
        self._next_note_ms = 0
        self._failed = False

    def forget(self) -> None:
        """What was noted does not count any more."""
        self._note = None

    def tick(self, now_ms: int, late: tuple[int, int] | None) -> None:
        """`late`: the first entry that must not be spoken of yet."""
        ready = self._note is None and not self.busy and not self._failed and not self._files.progress.replaying
        if self.changed and ready and now_ms >= self._next_note_ms:
            self._next_note_ms = now_ms + self._settings.timer_flush_interval_ms
            self._note = (self._store.appended_offset, self._files.snapshot(now_ms, before=late))
            self.changed = False
        if self._note is not None and self._store.flushed_offset >= self._note[0]:
            (_, check), self._note = self._note, None
            self._write(check)

    def _write(self, check: TimerCheckpoint) -> None:
        save = self._files.saver(check)
        save_metrics = self._metrics.saver()
        self.busy = True

        def job() -> None:
            try:
                save()
            except OSError:
                self._failed = True  # what was not synced may be lost although a second try succeeds
                raise
            finally:
                self.busy = False
            if save_metrics is not None:
                save_metrics()

        self._store.submit(job)

    def finish(self, slot: OpenSlot, now_ms: int) -> None:
        """A clean stop, with this slot open. If not all that was appended is durable, the next start takes it for a crash.
        OSError when the files cannot be written."""
        files = self._files
        files.log.write_out()
        _leave_open_slot(files, slot, self._metrics)
        check = files.snapshot(now_ms)
        durable = self._store.flushed_offset >= self._store.appended_offset and not self._failed
        save = files.saver(check, clean=True) if durable and not files.progress.replaying else None
        save_metrics = self._metrics.saver(always=True)

        def job() -> None:
            if save_metrics is not None:
                save_metrics()  # before the other, which says that this one can be trusted
            if save is not None:
                save()
            files.close()

        self._store.submit(job)


def _leave_open_slot(files: TimerFiles, slot: OpenSlot, metrics: TimerMetrics) -> None:
    """What of the open slot is delivered must not be delivered again: the rest becomes a chain of its own."""
    progress = files.progress
    rest = slot.rest()
    if not rest:
        progress.read_time_ms = slot.time_ms + files.wheel.precision_ms
        return
    previous, waiting = NONE, 0
    positions: list[int] = []
    done = {*slot.markers_done}
    for entry in rest:
        apart_ms = delay_field(slot.time_ms, entry.written_ms)
        previous = files.log.append(
            previous,
            entry.magic,
            slot.time_ms - apart_ms,
            apart_ms,
            entry.physical_offset,
            entry.record_size,
            entry.topic_hash,
        )
        positions.append(previous)
        waiting += -1 if entry.magic & DELETE else 1
        if entry.position in done:
            metrics.entered("", entry.topic_hash, entry.magic)
    files.log.write_out()
    files.wheel.put(slot.time_ms, positions[0], positions[-1], waiting)
