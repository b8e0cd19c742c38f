"""Durability of the commit log: how far it is synced, and the files that record it.

The flusher makes the log durable. The checkpoint records it, with what is known of the derived files, about every second. A
member of an elected group also records it in the group mark, under SYNC_FLUSH with every flush.

Invariant: no recorded offset is above the durable end of the log. Before a truncation `rewind` lowers them.
"""

from __future__ import annotations

from collections.abc import Callable

from firearrow.store.checkpoint import Checkpoint, CheckpointFile
from firearrow.store.commitlog.log import CommitLog
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk
from firearrow.store.group_mark import GroupMark, GroupMarkFile
from firearrow.store.recovery import RecoveryReport
from firearrow.store.settings import StoreSettings
from firearrow.store.threads import Flusher, Housekeeper


class LogDurability:
    """`elected`: the store belongs to a member of an elected group."""

    def __init__(self, settings: StoreSettings, disk: Disk, log: CommitLog, housekeeper: Housekeeper, *, elected: bool) -> None:
        self.checkpoint = CheckpointFile(disk, settings.store_path_root_dir, housekeeper)
        self._settings = settings
        self._disk = disk
        self._log = log
        self._housekeeper = housekeeper
        self._elected = elected
        self._mark_file: GroupMarkFile | None = None
        self._on_flushed: Callable[[int], None] | None = None
        self._on_error: Callable[[StoreError], None] | None = None
        self._flusher = Flusher(self._sync, self._flushed, self._flush_failed)
        self.flush_stats = self._flusher.stats
        self._next_flush_ms = 0

    @property
    def flushed_offset(self) -> int:
        return self._flusher.flushed_offset

    # Opening and closing

    def load(self) -> tuple[Checkpoint, GroupMark | None]:
        """Load the checkpoint and, for a member, the group mark."""
        checkpoint = self.checkpoint.load()
        if not self._elected:
            return checkpoint, None
        self._mark_file = GroupMarkFile(self._disk, self._settings.store_path_root_dir)
        mark = self._mark_file.mark
        mark.durable = max(mark.durable, checkpoint.flushed_offset)
        return checkpoint, mark

    def begin(self, report: RecoveryReport) -> bool:
        """Start after a recovery and save the checkpoint. Return whether a member has lost bytes that were durable."""
        checkpoint, boot_id, end = self.checkpoint.current, self._disk.boot_id(), report.log_end
        lost = False
        if self._mark_file is not None:
            mark = self._mark_file.mark
            torn = not (report.clean or checkpoint.boot_id == boot_id or self._settings.sync_flush) and mark.durable > 0
            lost = end < mark.durable or bool(report.damaged) or torn
            if lost:
                # Keeps the loss visible until the mark is saved again. By then the group has recorded it.
                self._mark_file.save(GroupMark(max(mark.durable, end + 1), mark.confirmed))
            elif mark.damaged:  # the scan of the whole log found nothing
                self._mark_file.save(GroupMark(mark.durable, mark.confirmed))
        self.reset_to(self._sync_recovered(end))
        checkpoint.boot_id = boot_id
        checkpoint.segment_size = self._log.segment_size
        checkpoint.queue_file_size = self._settings.consume_queue_file_size
        checkpoint.confirm_phy_offset = report.last_record_offset or checkpoint.confirm_phy_offset
        self.checkpoint.save()
        return lost

    def _sync_recovered(self, end: int) -> int:
        """Return the durable end. Recovery may have read from the page cache: SYNC_FLUSH syncs it before it is visible."""
        known = max(self._log.min_offset, min(self.checkpoint.current.flushed_offset, end))
        if known < end and self._settings.sync_flush:
            self._log.sync(known, end)
            return end
        return known

    def start(self, on_flushed: Callable[[int], None], on_error: Callable[[StoreError], None], *, threads: bool) -> None:
        self._on_flushed = on_flushed
        self._on_error = on_error
        if threads:
            self._flusher.start()
        else:
            self._flusher.start_inline()

    def stop(self) -> None:
        """Stop the flusher after the requests made so far."""
        self._flusher.stop()

    def close(self) -> None:
        self.stop()
        if self._mark_file is not None:
            self._mark_file.close()

    # Flushing

    def written(self, end: int) -> None:
        """Request a flush of bytes just written, under SYNC_FLUSH."""
        if self._settings.sync_flush:
            self._flusher.request(end)

    def flush_periodically(self, now_ms: int) -> None:
        """Request the flush that ASYNC_FLUSH does every `flushIntervalCommitLog`."""
        if not self._settings.sync_flush and now_ms >= self._next_flush_ms:
            self._next_flush_ms = now_ms + self._settings.flush_interval_commit_log
            if self._log.written_offset > self.flushed_offset:
                self._flusher.request(self._log.written_offset)

    def note_progress(self, confirmed: int) -> None:
        """Write the group mark. It survives the process, but not a power cut. OSError."""
        if self._mark_file is not None:
            self._mark_file.note(self.flushed_offset, confirmed)

    def flush(self) -> int:
        """Sync everything written, in the caller's thread. Return the durable end. StoreError."""
        end = self._log.written_offset
        if self._log.failure is not None:
            raise self._log.refusal()
        if end > self.flushed_offset:
            try:
                self._sync(self.flushed_offset, end)
            except OSError as error:
                raise self._log.fail(_sync_error(error)) from error
            self._flusher.flushed_offset = self._log.durable_offset = end
        return end

    def sync_to(self, offset: int) -> None:
        """Make the log below `offset` durable, from the housekeeper, for derived files that refer to it. OSError."""
        flushed = self.flushed_offset
        if flushed < offset:
            try:
                self._log.sync(flushed, offset)
            except OSError as error:
                self._flush_failed(error)
                raise

    def _sync(self, start: int, end: int) -> None:
        """Sync the log in [start, end) and, under SYNC_FLUSH, record it in the group mark. Any thread. OSError."""
        self._log.sync(start, end)
        if self._mark_file is not None and self._settings.sync_flush:
            self._mark_file.save_durable(end)

    def _flushed(self, offset: int) -> None:
        """Report a flush. Called by the flusher."""
        self._log.durable_offset = offset
        if self._settings.sync_flush and self._on_flushed is not None:
            self._on_flushed(offset)

    def _flush_failed(self, error: OSError) -> None:
        """Refuse writes from now on. Called by the flusher or the housekeeper."""
        refusal = self._log.fail(_sync_error(error))
        if self._on_error is not None:
            self._on_error(refusal)

    # Recording

    def save_checkpoint_later(self, refresh: Callable[[Checkpoint], None]) -> None:
        """Let the housekeeper save the checkpoint and sync the group mark, if `refresh` changes anything."""

        def update(checkpoint: Checkpoint) -> None:
            checkpoint.flushed_offset = self.flushed_offset
            refresh(checkpoint)

        self.checkpoint.save_later(update, self._mark_file.sync if self._mark_file is not None else _do_nothing)

    def save(self, refresh: Callable[[Checkpoint], None], confirmed: int) -> None:
        """Save checkpoint and group mark at a clean stop."""
        self.checkpoint.current.flushed_offset = self.flushed_offset
        refresh(self.checkpoint.current)
        self.checkpoint.save()
        self.save_mark(confirmed)

    def save_mark(self, confirmed: int) -> None:
        """Save the group mark, even if it is lower than before. No flush may be in progress. Durable on return."""
        if self._mark_file is not None:
            self._mark_file.save(GroupMark(self.flushed_offset, confirmed, self._mark_file.mark.damaged))

    def mark_damaged(self) -> None:
        """Record that a record cannot be read: the next opening scans the whole log and ends it there."""
        if self._mark_file is not None:
            self._mark_file.save_damaged()

    def truncated(self, end: int) -> None:
        """Lower the flushed offset after an incomplete record was removed at a stop."""
        self._flusher.flushed_offset = min(self._flusher.flushed_offset, end)

    def rewind(self, offset: int, confirmed: int) -> None:
        """Prepare for a truncation: no file, and no job or flush in progress, refers to the log above `offset` on return."""
        self._housekeeper.drain()
        self._flusher.rewind(offset)
        self._log.durable_offset = min(self._log.durable_offset, offset)
        self.save_mark(confirmed)
        checkpoint = self.checkpoint.current
        checkpoint.flushed_offset = min(checkpoint.flushed_offset, offset)
        self.checkpoint.save()

    def reset_to(self, offset: int) -> None:
        """Set the durable end: the log was recovered or emptied."""
        self._flusher.flushed_offset = self._log.durable_offset = self.checkpoint.current.flushed_offset = offset


def _sync_error(error: OSError) -> str:
    return f"fdatasync of the commit log failed: {error}"


def _do_nothing() -> None:
    pass
