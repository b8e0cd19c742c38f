"""Timer messages: delivery at an arbitrary time, up to `timerMaxDelaySec` ahead.

A producer sets TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS (checked in this order). The message is held in
rmq_sys_wheel_timer. From there it is enqueued into the timer log and the timer wheel, which order messages by time.

    send --defer--> rmq_sys_wheel_timer --enqueue--> timer log + wheel slot --due--> REAL_TOPIC and REAL_QID
                            ^                               |
                            +------------ roll -------------+   further ahead than `timerRollWindowSlot` slots

The slots of the wheel are `timerPrecisionMs` apart. A message with delivery time D belongs to slot T, the last multiple of the
precision before D. At T the slot is opened and its messages are read; each is delivered at its own D, or at T + precision if D is
not known. Delivery adds two properties: TIMER_ENQUEUE_MS, the time it was enqueued, and TIMER_DEQUEUE_MS, the current time.

A message is recalled by a marker (TIMER_DEL_UNIQKEY, recall.py), a timer message for the same slot.

The checkpoint must not be ahead of what is durable: otherwise a power cut could lose messages that it counts as delivered. So a
snapshot is taken together with the current end of the commit log, and written once the log is durable up to there.

Invariants:
- No message is delivered before its delivery time.
- The slot at `read_time_ms` is open and all earlier slots are delivered. No message is lost after a crash, however long the
  broker was down.
- A delivered or rolled message names the record it was copied from in PREPAREDTRANSACTIONOFFSET. After a crash or an election the
  checkpoint is behind by some deliveries. They are found in the log and not repeated.
- Messages are delivered only after everything that was in the queue when the tick began is enqueued. So a recall that was
  acknowledged in time is effective even if message and marker are read from the queue late.
- A slot is opened only after everything rolled to it is enqueued. So a message and its marker meet there, whichever of them was
  rolled, however late the broker or slow the disk is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from firearrow.broker.deferred.records import DeferredRecord, batch_within_limit, read_cost, read_records
from firearrow.broker.log_scan import delivered_since
from firearrow.broker.message import read_message
from firearrow.broker.send.internal import InternalWriter
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.timer.admission import TimerAdmission
from firearrow.broker.timer.metrics import TimerMetrics
from firearrow.broker.timer.slot import OpenSlot
from firearrow.store.consume_queue import ENTRY, ConsumeQueue
from firearrow.store.errors import StoreError
from firearrow.store.message_store import MessageStore
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.store.timer.files import TimerFiles
from firearrow.store.timer.log import DELETE, MAGIC, NONE, ROLL, TimerEntry, delay_field
from firearrow.wire import properties
from firearrow.wire.java_hash import hash_code
from firearrow.wire.names import TIMER_TOPIC
from firearrow.wire.properties import find, with_properties
from firearrow.wire.record import prepared_transaction_offset_at

MAX_PER_TICK = 500  # small messages delivered per tick; bounds the time the event loop is blocked
_BATCH = 256  # queue entries read together
_RETRY_MS = 1_000  # after an I/O error
_EXPIRE_MS = 30_000
_SNAPSHOT_BYTES = 64 * 1024 * 1024
_HOUR_MS = 3_600_000
_topic_hash = lru_cache(maxsize=1024)(hash_code)


class TimerService:
    """Holds timer messages and delivers them when they are due.

    `clean` says whether the store was shut down cleanly; it matters for timer files written by an Apache broker. `active` says
    whether this broker is the master.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        writer: InternalWriter,
        *,
        clean: bool,
        now_ms: int,
        active: bool = True,
    ) -> None:
        self._settings = settings
        self._store = store
        self._writer = writer
        self.files = TimerFiles(
            store.disk,
            store.settings.store_path_root_dir,
            precision_ms=settings.timer_precision_ms,
            segment_size=settings.mapped_file_size_timer_log,
        )
        self.metrics = TimerMetrics(store.disk, store.settings.store_path_root_dir, now_ms)
        self.slot: OpenSlot | None = None
        self._barrier = 0  # nothing is delivered until the queue is enqueued up to here
        self._rolled: tuple[int, int] | None = None  # rolled and not enqueued yet: end queue offset, earliest slot
        self._overdue: tuple[int, int] | None = None  # see `_enqueue_record`: position in the timer log, queue offset
        self._pending_recalls: dict[str, int] = {}  # identity of the recalled message: slot; markers not enqueued yet
        admission = TimerAdmission(settings, self.files.wheel, self._recall)
        self.defer, self.check = admission.defer, admission.check
        self._next_expire_ms = self._retry_at_ms = 0
        self._problem = ""
        self._delivered: set[int] = set()  # physical offsets of messages delivered since the checkpoint and before `_open`
        self._delivered_until_ms = 0
        self._opened_end = 0  # end of the queue at `_open`
        # Physical offsets of messages whose rolled copies were in the queue at `_open`. Each is removed with its slot.
        self._superseded: set[int] = set()
        self._opened = False
        self._master_checkpoint: TimerCheckpoint | None = None  # on a replica
        # Checkpointing
        self._changed = False  # since the last snapshot
        self._saving = False  # a checkpoint is being written
        self._save_failed = False
        self._snapshot: tuple[int, TimerCheckpoint] | None = None  # log offset that must be durable first, checkpoint
        self._snapshot_end = 0  # end of the log at the last snapshot
        self._next_snapshot_ms = 0
        if settings.timer_wheel_enable and active:
            self._open(now_ms, clean=clean)

    def _open(self, now_ms: int, *, clean: bool) -> None:
        store, files = self._store, self.files
        if self._master_checkpoint is not None:
            files.save_copied(self._master_checkpoint)
            self._master_checkpoint = None
        self._opened = True
        files.open(clean=clean, now_ms=now_ms, queue_offset_of=self._queue_offset_of)
        self._report_problems()
        self._clear_pending()
        queue = store.find_queue(TIMER_TOPIC, 0)
        progress = files.progress
        progress.replay_to = min(progress.replay_to, 0 if queue is None else queue.next_offset)
        if queue is not None:
            progress.queue_offset = max(min(progress.queue_offset, queue.max_offset), queue.min_offset)
            # Records that are not readable yet may include a recall acknowledged by the previous master.
            self._barrier = self._opened_end = queue.next_offset
            self._find_delivered(queue, now_ms)
        if not self.metrics.load() or not files.as_left:
            self.metrics.recount(files.count_waiting(), self._real_topic_of)
        if files.begun:
            self._open_slot()

    def _find_delivered(self, queue: ConsumeQueue, now_ms: int) -> None:
        """Search the log for messages that were delivered although the checkpoint does not cover them."""
        # Their slots were open when they were delivered, so that was at the time of the checkpoint's slot or later.
        since_ms: int | None = self.files.progress.read_time_ms
        if not self.files.begun:  # a replica that has never copied a checkpoint starts with the first message
            since_ms = self._store.reader.store_time(queue, self.files.progress.queue_offset)
        unknown = since_ms is not None and not self.files.as_left
        self._delivered = delivered_since(self._store, since_ms or 0) if unknown else set()
        self._delivered_until_ms = now_ms

    # Replication

    def activate(self, now_ms: int) -> None:
        """Start delivering when this broker becomes the master.

        State from an earlier term as master is discarded, since the log may have been truncated since.
        """
        if not self._settings.timer_wheel_enable:
            return
        if self._opened:
            if self._saving:
                self._store.drain()
            if self.files.begun:
                self.follow(self.files.saved)
        self._open(now_ms, clean=False)

    def follow(self, checkpoint: TimerCheckpoint) -> None:
        """Take over the master's checkpoint on a replica.

        When this broker becomes the master it continues from there with its own copy of the timer queue. Its own timer files from
        an earlier term are discarded.
        """
        if not self._settings.timer_wheel_enable or self._saving:
            return  # while a checkpoint is being written; the next copy from the master is as good
        files = self.files
        if self._opened or self._master_checkpoint is None:
            self.slot = self._snapshot = None
            self._clear_pending()
            self._opened = False
            files.discard()
        if self._master_checkpoint is None or not self._master_checkpoint.has_same_progress(checkpoint):
            self._master_checkpoint = checkpoint
            self._store.submit(lambda: files.save_copied(checkpoint))
        files.progress.queue_offset = checkpoint.queue_offset

    def _clear_pending(self) -> None:
        self._pending_recalls.clear()
        self._superseded.clear()
        self._barrier = 0
        self._rolled = self._overdue = None

    # Recall

    def _recall(self, identity: str, out_ms: int) -> None:
        """Make a recall effective at once: the message may be due before the marker is durable and enqueued."""
        self._pending_recalls[identity] = out_ms
        if self.slot is not None and out_ms <= self.slot.time_ms:
            self.slot.recall(identity)

    # Scheduling

    def tick(self, now_ms: int) -> bool:
        """Enqueue new messages and deliver due ones. Return True if more work is due than one tick may do."""
        self.metrics.tick(now_ms)
        if now_ms < self._retry_at_ms:
            return False
        try:
            more = self._tick(now_ms)
        except (OSError, StoreError) as error:
            self._retry_at_ms = now_ms + _RETRY_MS
            self._fail(f"timer messages are not delivered: {error}")
            return False
        self._problem = ""
        return more

    def next_due_ms(self) -> int | None:
        """Return when the next message is due, in the open slot or the one after it; None if neither has one."""
        slot, wheel = self.slot, self.files.wheel
        if slot is None:
            return None
        next_slot_ms = slot.time_ms + wheel.precision_ms
        if slot.next_due_ms is not None:
            return slot.next_due_ms
        return next_slot_ms if wheel.get(next_slot_ms) is not None else None

    def first_due_ms(self, until_ms: int) -> int | None:
        """Return when a tick next has work to do, up to `until_ms`. Scans the wheel; not meant to be called on every tick."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None or not self._settings.timer_wheel_enable:
            return None
        if self.files.progress.queue_offset < queue.max_offset and self._store.writable:
            return 0
        slot, wheel = self.slot, self.files.wheel
        if slot is None:
            return None
        if slot.next_due_ms is not None:
            return slot.next_due_ms
        if not slot.empty:
            return slot.time_ms
        return wheel.next_used(slot.time_ms + wheel.precision_ms, until_ms + 1)

    def _tick(self, now_ms: int) -> bool:
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None or not self._settings.timer_wheel_enable:
            return False
        if not self._opened:  # this broker was a replica
            self._open(now_ms, clean=False)
        progress = self.files.progress
        if self.files.log.pending:
            self.files.log.write_out()
        if progress.queue_offset >= self._barrier:
            self._barrier = queue.max_offset
        if progress.queue_offset < queue.max_offset:
            self._enqueue(queue, now_ms)
        if self.slot is None:
            return False
        more = False
        if progress.queue_offset >= self._barrier and self._store.writable:
            more = self._deliver_due(now_ms)
        self._checkpoint_tick(now_ms)
        if now_ms >= self._next_expire_ms:
            self._next_expire_ms = now_ms + _EXPIRE_MS
            self._expire()
        return more or (progress.queue_offset < queue.max_offset and self._store.writable)

    # From the queue into the wheel

    def _enqueue(self, queue: ConsumeQueue, now_ms: int) -> None:
        files, progress = self.files, self.files.progress
        if not files.begun:
            files.begin(now_ms)
        if self.slot is None:
            progress.read_time_ms = max(progress.read_time_ms, files.wheel.floor(now_ms))
            self._open_slot()
        progress.queue_offset = max(progress.queue_offset, queue.min_offset)
        # The budget grows with the backlog, so that the queue cannot grow faster than it is enqueued.
        left = MAX_PER_TICK + min((queue.max_offset - progress.queue_offset) // 4, 6 * MAX_PER_TICK)
        while left > 0 and progress.queue_offset < queue.max_offset:
            entries = [*ENTRY.iter_unpack(queue.entries(progress.queue_offset, min(_BATCH, left)))]
            if not entries:  # a queue file is missing
                progress.queue_offset = queue.max_offset
                break
            del entries[batch_within_limit([size for _, size, _ in entries]) :]
            records = read_records(self._store, [(offset, size) for offset, size, _ in entries])
            for (offset, size, _), record in zip(entries, records, strict=True):
                out_ms = None if record is None else record.number(b"TIMER_OUT_MS")
                if record is not None and out_ms is not None:
                    self._enqueue_record(record, out_ms, offset, size, now_ms)
                progress.queue_offset += 1
                left -= read_cost(size)
        self._changed = True
        files.log.write_out()

    def _enqueue_record(self, record: DeferredRecord, out_ms: int, offset: int, size: int, now_ms: int) -> None:
        """Add a message to the timer log and the wheel."""
        files, progress, slot = self.files, self.files.progress, self.slot
        assert slot is not None
        if progress.replaying and out_ms < progress.replay_from_ms:
            return
        if progress.queue_offset < self._opened_end and b"TIMER_ROLL_TIMES\x01" in record.properties:
            self._superseded.add(prepared_transaction_offset_at(record.raw))
        log, wheel = files.log, files.wheel
        written_ms = wheel.floor(now_ms)
        magic = MAGIC
        time_ms = wheel.floor(out_ms)
        window_ms = self._roll_window_ms()
        if time_ms - written_ms >= window_ms:
            magic |= ROLL
            far = time_ms - written_ms - window_ms >= window_ms // 3
            time_ms = wheel.floor(written_ms + (window_ms if far else window_ms // 2))
        time_ms = max(time_ms, slot.time_ms)
        if time_ms - slot.time_ms >= wheel.span_ms:  # after weeks of downtime: the slot is still in use by the previous turn
            magic |= ROLL
            time_ms = wheel.floor(slot.time_ms + wheel.span_ms // 2)
        recalls = record.recalls
        if recalls is not None:
            magic |= DELETE
            self._pending_recalls.pop(recalls, None)
        topic = record.text(b"REAL_TOPIC") or ""
        topic_hash = _topic_hash(topic)
        before = wheel.get(time_ms)
        previous = NONE if before is None else before.last
        delayed_ms = delay_field(time_ms, written_ms)
        position = log.append(previous, magic, time_ms - delayed_ms, delayed_ms, offset, size, topic_hash)
        wheel.add(time_ms, position, count=1 if recalls is None else -1)
        if self._overdue is None and out_ms < slot.time_ms:
            # A replica that becomes the master has the checkpoint but not this timer log, and would take the message for
            # delivered. So no checkpoint covers it until it is delivered.
            self._overdue = (position, progress.queue_offset)
        self.metrics.enqueued(topic, topic_hash, magic)
        if time_ms == slot.time_ms:
            if recalls is not None and not magic & ROLL:
                slot.recall(recalls)
            slot.add(position)

    def _roll_window_ms(self) -> int:
        """Return how far ahead a message may be enqueued: its record must still exist when its slot is opened."""
        window_ms = self._settings.timer_roll_window_slot * self.files.wheel.precision_ms
        kept_ms = self._store.settings.file_reserved_time * _HOUR_MS
        return min(window_ms, max(kept_ms // 3 * 2, _HOUR_MS))

    # From the wheel to the topics

    def _deliver_due(self, now_ms: int) -> bool:
        """Deliver due messages. Return True if more are due than one tick may deliver."""
        budget = MAX_PER_TICK
        while budget > 0:
            slot = self.slot
            assert slot is not None
            before = budget
            while budget > 0 and (taken := slot.take(now_ms)) is not None:
                self._deliver(*taken, now_ms)
                self._changed = True
                budget -= read_cost(len(taken[1].raw))
            if budget <= 0:
                break
            budget = slot.prepare(budget)
            if slot.empty:
                self._overdue = None
                until_ms = self._last_openable_ms(now_ms)
                if slot.time_ms >= until_ms:
                    return False
                self._advance(slot, until_ms)
                budget -= 1
            elif budget == before:
                if slot.all_read and slot.time_ms <= now_ms:
                    self._overdue = None
                return False  # the remaining messages are due later
        return True

    def _last_openable_ms(self, now_ms: int) -> int:
        """Return the last slot that may be opened now."""
        this_ms = self.files.wheel.floor(now_ms)
        if self._rolled is None:
            return this_ms
        end, first_ms = self._rolled
        if self.files.progress.queue_offset >= end:
            self._rolled = None
            return this_ms
        return min(this_ms, first_ms - self.files.wheel.precision_ms)

    def _advance(self, slot: OpenSlot, this_ms: int) -> None:
        """Open the next slot with messages, or the current one."""
        if slot.lost:
            self._store.problems.append(f"timers: {slot.lost} messages due at {slot.time_ms} are missing from the commit log")
        self._changed |= slot.used
        wheel, progress = self.files.wheel, self.files.progress
        if self._delivered and slot.time_ms > self._delivered_until_ms and not progress.replaying:
            self._delivered.clear()
        next_ms = slot.time_ms + wheel.precision_ms
        used_ms = wheel.next_used(next_ms, this_ms) if next_ms < this_ms else None
        progress.read_time_ms = this_ms if used_ms is None else used_ms
        self._open_slot()

    def _open_slot(self) -> None:
        files = self.files
        chain = files.wheel.get(files.progress.read_time_ms)
        last = NONE if chain is None else chain.last
        self.slot = slot = OpenSlot(
            files.progress.read_time_ms, last, files.log, self._store, files.wheel.precision_ms, self.metrics.dequeued
        )
        for identity, out_ms in self._pending_recalls.items():
            if out_ms <= slot.time_ms:
                slot.recall(identity)

    def _deliver(self, entry: TimerEntry, record: DeferredRecord, now_ms: int) -> None:
        if record.physical_offset in self._delivered:
            return
        if record.physical_offset in self._superseded:
            self._superseded.discard(record.physical_offset)
            return
        stamps = {"TIMER_ENQUEUE_MS": str(entry.written_ms), "TIMER_DEQUEUE_MS": str(now_ms)}
        if entry.magic & ROLL:
            topic, queue_id = TIMER_TOPIC, 0
            stamps["TIMER_ROLL_TIMES"] = str((record.number(b"TIMER_ROLL_TIMES") or 0) + 1)
        else:
            topic, queue_id = record.text(b"REAL_TOPIC") or TIMER_TOPIC, record.number(b"REAL_QID") or 0
        message = record.message(topic, queue_id)
        if message is None or (topic == TIMER_TOPIC and not entry.magic & ROLL):
            self._store.problems.append(f"timers: the message at {record.physical_offset} is corrupt and is not delivered")
            return
        message.prepared_offset = record.physical_offset
        stamped = with_properties(message.properties, stamps)
        if len(stamped) <= properties.MAX_BYTES:
            message.properties = stamped
        try:
            self._writer.deliver(message, now_ms)
        except ValueError as error:
            self._store.problems.append(f"timers: the message at {record.physical_offset} cannot be delivered: {error}")
            return
        if entry.magic & ROLL:
            first_ms = self.files.wheel.floor(record.number(b"TIMER_OUT_MS") or 0)
            self._rolled = (message.queue_offset + 1, first_ms if self._rolled is None else min(first_ms, self._rolled[1]))

    # Administration and replication

    def checkpoint(self) -> bytes | None:
        """Return the saved checkpoint in Apache's encoding; None if timers are disabled."""
        if not self._settings.timer_wheel_enable:
            return None
        return (self._master_checkpoint or self.files.saved).encode_fields()

    def runtime_info(self, now_ms: int) -> dict[str, int | float]:
        """Return lags and rates under Apache's names."""
        progress = self.files.progress
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        enqueue_tps, dequeue_tps = self.metrics.rates()
        return {
            "timerReadBehind": 0 if self.slot is None else max(now_ms - progress.read_time_ms, 0) // 1000,
            "timerOffsetBehind": 0 if queue is None else max(queue.max_offset - progress.queue_offset, 0),
            "timerCongestNum": self.metrics.pending,
            "timerEnqueueTps": enqueue_tps,
            "timerDequeueTps": dequeue_tps,
        }

    def pending_by_slot(self, now_ms: int, ahead_ms: int) -> Iterator[tuple[int, int]]:
        """Yield (slot time, messages) of the wheel's slots for the next `ahead_ms`."""
        if self.slot is not None:
            this_ms = self.files.wheel.floor(now_ms)
            yield from self.files.wheel.waiting(this_ms, this_ms + ahead_ms)

    # Persistence

    def close(self, now_ms: int) -> None:
        """Write the final checkpoint at shutdown. Everything appended should be durable; if not, the next start recovers."""
        if self.slot is None:
            return
        try:
            self._write_final_checkpoint(self.slot, now_ms)
        except OSError as error:
            self._fail(f"timer files cannot be written: {error}; the next start recovers them")
            return
        self.slot = None

    def _checkpoint_tick(self, now_ms: int) -> None:
        ready = self._snapshot is None and not self._saving and not self._save_failed and not self.files.progress.replaying
        # Without timer messages too, so that the next `_open` has little of the log to search.
        changed = self._changed or self._store.appended_offset - self._snapshot_end >= _SNAPSHOT_BYTES
        if changed and ready and now_ms >= self._next_snapshot_ms:
            self._next_snapshot_ms = now_ms + self._settings.timer_flush_interval_ms
            self._snapshot_end = self._store.appended_offset
            self._snapshot = (self._snapshot_end, self.files.snapshot(now_ms, before=self._overdue))
            self._changed = False
        if self._snapshot is not None and self._store.flushed_offset >= self._snapshot[0]:
            (_, checkpoint), self._snapshot = self._snapshot, None
            self._write_checkpoint(checkpoint)

    def _write_checkpoint(self, checkpoint: TimerCheckpoint) -> None:
        save = self.files.saver(checkpoint)
        save_metrics = self.metrics.saver()
        self._saving = True

        def job() -> None:
            try:
                save()
            except OSError:
                self._save_failed = True  # unsynced data may be lost even if a second attempt succeeds
                raise
            finally:
                self._saving = False
            if save_metrics is not None:
                save_metrics()

        self._store.submit(job)

    def _write_final_checkpoint(self, slot: OpenSlot, now_ms: int) -> None:
        """Save the state at a clean shutdown. Without full durability it is not marked clean. Raises OSError."""
        files = self.files
        files.log.write_out()
        self._rewrite_open_slot(slot)
        checkpoint = files.snapshot(now_ms)
        durable = self._store.flushed_offset >= self._store.appended_offset and not self._save_failed
        save = files.saver(checkpoint, clean=True) if durable and not files.progress.replaying else None
        save_metrics = self.metrics.saver(always=True)

        def job() -> None:
            if save_metrics is not None:
                save_metrics()  # before the checkpoint, which declares the metrics valid
            if save is not None:
                save()
            files.close()

        self._store.submit(job)

    def _rewrite_open_slot(self, slot: OpenSlot) -> None:
        """Write the undelivered entries of the open slot as a new chain, so that the others are not delivered again."""
        files = self.files
        remaining = slot.remaining()
        if not remaining:
            files.progress.read_time_ms = slot.time_ms + files.wheel.precision_ms
            return
        previous, pending = NONE, 0
        positions: list[int] = []
        processed_markers = {*slot.processed_markers}
        for entry in remaining:
            delay_ms = delay_field(slot.time_ms, entry.written_ms)
            previous = files.log.append(
                previous,
                entry.magic,
                slot.time_ms - delay_ms,
                delay_ms,
                entry.physical_offset,
                entry.record_size,
                entry.topic_hash,
            )
            positions.append(previous)
            pending += -1 if entry.magic & DELETE else 1
            if entry.position in processed_markers:
                self.metrics.enqueued("", entry.topic_hash, entry.magic)
        files.log.write_out()
        files.wheel.put(slot.time_ms, positions[0], positions[-1], pending)

    def _expire(self) -> None:
        job = self.files.expire(self._store.min_offset)
        if job is not None:
            self._store.submit(job)
        self._report_problems()

    def _queue_offset_of(self, physical_offset: int) -> int | None:
        record = read_message(self._store, physical_offset, check_crc=False)
        return record.queue_offset if record is not None and record.topic == TIMER_TOPIC else None

    def _real_topic_of(self, physical_offset: int) -> str | None:
        record = read_message(self._store, physical_offset, check_crc=False)
        name = None if record is None else find(record.properties, b"REAL_TOPIC")
        return None if name is None else name.decode("utf-8", "replace")

    def _fail(self, text: str) -> None:
        if text != self._problem:
            self._store.problems.append(text)
            self._problem = text

    def _report_problems(self) -> None:
        self._store.problems.extend(self.files.problems)
        self.files.problems.clear()
