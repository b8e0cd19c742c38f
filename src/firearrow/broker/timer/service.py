"""Timer messages: to be delivered at any moment, up to `timerMaxDelaySec` ahead.

A producer asks with TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS (looked for in this order). The message waits in
rmq_sys_wheel_timer; from there it is entered into the timer log and the wheel, which know what is due when.

    send --place--> rmq_sys_wheel_timer --enter--> timer log + slot of the wheel --due--> its REAL_TOPIC and REAL_QID
                            ^                                  |
                            +----------- rolled on ------------+   further ahead than `timerRollWindowSlot` slots

The wheel's slots are `timerPrecisionMs` apart. A message wanted at time D has the slot T = the last multiple of the precision
before D. When T comes, the slot is opened and its messages are read; each is delivered when its own D is reached, or at
T + precision where D is not known any more. It gets two properties then: TIMER_ENQUEUE_MS, when it was entered, and
TIMER_DEQUEUE_MS, now.

A message is recalled by another one, a marker (TIMER_DEL_UNIQKEY, recall.py), that is entered into the same slot.

Invariants
- Nothing is delivered before the moment it was sent for.
- The slot at `read_time_ms` is open, those before it are delivered. The checkpoint says so only when the log is durable as far
  as it ended then: after a crash a message may be delivered again, never left out, however long the broker was down.
- Messages are delivered when everything is entered that was in the queue as a tick began: a recall that was acknowledged in time
  holds even if both are taken from the queue late.
- A slot is opened when all that was rolled on to it is entered: a message and its recall meet there, whichever of them rolled,
  however late the broker is and however long the disk takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from firearrow.broker.deferred.records import DeferredRecord, effort, portion, read_waiting, with_names
from firearrow.broker.send.internal import InternalWriter
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.timer.admission import TimerAdmission
from firearrow.broker.timer.metrics import TimerMetrics
from firearrow.broker.timer.slot import OpenSlot
from firearrow.broker.timer.timer_saving import TimerCheckpointer
from firearrow.store.consume_queue import ENTRY, ConsumeQueue
from firearrow.store.errors import StoreError
from firearrow.store.message_store import MessageStore
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.store.timer.files import TimerFiles
from firearrow.store.timer.log import DELETE, MAGIC, NONE, ROLL, TimerEntry, delay_field
from firearrow.wire import properties
from firearrow.wire.errors import ProtocolError
from firearrow.wire.java_hash import hash_code
from firearrow.wire.names import TIMER_TOPIC
from firearrow.wire.properties import find
from firearrow.wire.record import Record, decode

MAX_A_TICK = 500  # small messages delivered in one tick: the loop has others to serve
_RUN = 256  # queue entries looked at together
_RETRY_MS = 1_000  # after the disk refused
_EXPIRE_MS = 30_000
_HOUR_MS = 3_600_000
_topic_hash = lru_cache(maxsize=1024)(hash_code)


class TimerService:
    """`clean`: how the store was left, for files that an Apache broker wrote. `active`: this broker is the master."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        inner: InternalWriter,
        *,
        clean: bool,
        now_ms: int,
        active: bool = True,
    ) -> None:
        self._settings = settings
        self._store = store
        self._inner = inner
        self._files = TimerFiles(
            store.disk,
            store.settings.store_path_root_dir,
            precision_ms=settings.timer_precision_ms,
            segment_size=settings.mapped_file_size_timer_log,
        )
        self.metrics = TimerMetrics(store.disk, store.settings.store_path_root_dir, now_ms)
        self._slot: OpenSlot | None = None
        self._barrier = 0  # nothing is delivered until the queue is entered up to here
        self._rolled: tuple[int, int] | None = None  # what is rolled on and not entered: queue offset behind it, its first slot
        self._late: tuple[int, int] | None = None  # see `_enter_one`: position in the timer log, queue offset
        self._markers_coming: dict[str, int] = {}  # recalled message: slot; those that are not entered yet
        self._saving = TimerCheckpointer(store, self._files, self.metrics, settings)
        coming = TimerAdmission(settings, self._files.wheel, self._recall_at_once)
        self.defer, self.check = coming.defer, coming.check
        self._next_expire_ms = self._retry_at_ms = 0
        self._problem = ""
        self._opened = False
        self._copied: TimerCheckpoint | None = None  # of a replica: how far its master is
        if settings.timer_wheel_enable and active:
            self._open(now_ms, clean=clean)

    def _open(self, now_ms: int, *, clean: bool) -> None:
        store, files = self._store, self._files
        if self._copied is not None:
            files.save_copied(self._copied)
            self._copied = None
        self._opened = True
        files.open(clean=clean, now_ms=now_ms, queue_offset_of=self._queue_offset_of)
        self._report()
        self._forget_what_comes()
        queue = store.find_queue(TIMER_TOPIC, 0)
        progress = files.progress
        progress.replay_to = min(progress.replay_to, 0 if queue is None else queue.next_offset)
        if queue is not None:
            progress.queue_offset = max(min(progress.queue_offset, queue.max_offset), queue.min_offset)
            self._barrier = queue.next_offset  # a recall may be among what cannot be read yet: it was acknowledged elsewhere
        if not self.metrics.load() or not files.as_left:
            self.metrics.recount(files.count_waiting(), self._real_topic_of)
        if files.begun:
            self._open_slot()

    # Of a replica.

    def take_up(self, now_ms: int) -> None:
        """This broker is the master from now on. What it knew when it was one before may have been taken back since."""
        if not self._settings.timer_wheel_enable:
            return
        if self._opened:
            if self._saving.busy:
                self._store.drain()
            if self._files.begun:
                self.follow(self._files.saved)
        self._open(now_ms, clean=False)

    def follow(self, checkpoint: TimerCheckpoint) -> None:
        """The master is so far. Once this broker is one itself it goes on from there, with what waits in its own copy of the
        timer queue; timer files of its own from an earlier time do not count any more."""
        if not self._settings.timer_wheel_enable or self._saving.busy:
            return  # what is being saved comes first: the next copy is as good
        files = self._files
        if self._opened or self._copied is None:
            self._slot = None
            self._saving.forget()
            self._forget_what_comes()
            self._opened = False
            files.forget()
        if self._copied is None or not self._copied.says_the_same(checkpoint):
            self._copied = checkpoint
            self._store.submit(lambda: files.save_copied(checkpoint))
        files.progress.queue_offset = checkpoint.queue_offset

    def _forget_what_comes(self) -> None:
        self._markers_coming.clear()
        self._barrier = 0
        self._rolled = self._late = None

    # Coming in.

    def _recall_at_once(self, identity: str, out_ms: int) -> None:
        """The message may be due before its marker is durable and entered: it counts from now on."""
        self._markers_coming[identity] = out_ms
        if self._slot is not None and out_ms <= self._slot.time_ms:
            self._slot.recall(identity)

    # Time.

    def tick(self, now_ms: int) -> bool:
        """Enters what has come and delivers what is due. True when there is more than one tick may do."""
        self.metrics.tick(now_ms)
        if now_ms < self._retry_at_ms:
            return False
        try:
            more = self._tick(now_ms)
        except (OSError, StoreError) as error:
            self._retry_at_ms = now_ms + _RETRY_MS
            self._fail(f"timer messages wait: {error}")
            return False
        self._problem = ""
        return more

    def next_due_ms(self) -> int | None:
        """When a tick will have something to deliver; None: nothing is known to be due before the next slots."""
        slot, wheel = self._slot, self._files.wheel
        if slot is None:
            return None
        next_slot_ms = slot.time_ms + wheel.precision_ms
        if slot.next_due_ms is not None:
            return slot.next_due_ms
        return next_slot_ms if wheel.get(next_slot_ms) is not None else None

    def first_due_ms(self, until_ms: int) -> int | None:
        """When a tick will have something to do, as far ahead as `until_ms`. Looks through the wheel: not for every tick."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None or not self._settings.timer_wheel_enable:
            return None
        if self._files.progress.queue_offset < queue.max_offset and self._store.writable:
            return 0
        slot, wheel = self._slot, self._files.wheel
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
        if not self._opened:  # it was a replica until now
            self._open(now_ms, clean=False)
        progress = self._files.progress
        if self._files.log.pending:
            self._files.log.write_out()
        if progress.queue_offset >= self._barrier:
            self._barrier = queue.max_offset
        if progress.queue_offset < queue.max_offset:
            self._enter(queue, now_ms)
        if self._slot is None:
            return False
        more = False
        if progress.queue_offset >= self._barrier and self._store.writable:
            more = self._deliver_due(now_ms)
        self._saving.tick(now_ms, self._late)
        if now_ms >= self._next_expire_ms:
            self._next_expire_ms = now_ms + _EXPIRE_MS
            self._expire()
        return more or (progress.queue_offset < queue.max_offset and self._store.writable)

    # From the queue into the wheel.

    def _enter(self, queue: ConsumeQueue, now_ms: int) -> None:
        files, progress = self._files, self._files.progress
        if not files.begun:
            files.begin(now_ms)
        if self._slot is None:
            progress.read_time_ms = max(progress.read_time_ms, files.wheel.floor(now_ms))
            self._open_slot()
        progress.queue_offset = max(progress.queue_offset, queue.min_offset)
        # Whatever the rate at which they come, the queue must not grow faster than it is entered.
        left = MAX_A_TICK + min((queue.max_offset - progress.queue_offset) // 4, 6 * MAX_A_TICK)
        while left > 0 and progress.queue_offset < queue.max_offset:
            entries = [*ENTRY.iter_unpack(queue.entries(progress.queue_offset, min(_RUN, left)))]
            if not entries:  # a file of the queue is missing
                progress.queue_offset = queue.max_offset
                break
            del entries[portion([size for _, size, _ in entries]) :]
            records = read_waiting(self._store, [(offset, size) for offset, size, _ in entries])
            for (offset, size, _), record in zip(entries, records, strict=True):
                out_ms = None if record is None else record.number(b"TIMER_OUT_MS")
                if record is not None and out_ms is not None:
                    self._enter_one(record, out_ms, offset, size, now_ms)
                progress.queue_offset += 1
                left -= effort(size)
        self._saving.changed = True
        files.log.write_out()

    def _enter_one(self, record: DeferredRecord, out_ms: int, offset: int, size: int, now_ms: int) -> None:
        """Enters a message into timer log and wheel."""
        files, progress, slot = self._files, self._files.progress, self._slot
        assert slot is not None
        if progress.replaying and out_ms < progress.replay_from_ms:
            return
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
        if time_ms - slot.time_ms >= wheel.span_ms:  # after weeks away: that slot is still the one of a round before
            magic |= ROLL
            time_ms = wheel.floor(slot.time_ms + wheel.span_ms // 2)
        recalls = record.recalls
        if recalls is not None:
            magic |= DELETE
            self._markers_coming.pop(recalls, None)
        topic = record.text(b"REAL_TOPIC") or ""
        topic_hash = _topic_hash(topic)
        before = wheel.get(time_ms)
        previous = NONE if before is None else before.last
        delayed_ms = delay_field(time_ms, written_ms)
        position = log.append(previous, magic, time_ms - delayed_ms, delayed_ms, offset, size, topic_hash)
        wheel.add(time_ms, position, count=1 if recalls is None else -1)
        if self._late is None and out_ms < slot.time_ms:
            # It looks delivered to whoever has the checkpoint without this timer log, a replica that becomes the master: no
            # checkpoint says that it was entered until it is delivered indeed.
            self._late = (position, progress.queue_offset)
        self.metrics.entered(topic, topic_hash, magic)
        if time_ms == slot.time_ms:
            if recalls is not None and not magic & ROLL:
                slot.recall(recalls)
            slot.add(position)

    def _roll_window_ms(self) -> int:
        """How far ahead a message is entered at most: its record must still be there when its slot comes."""
        window_ms = self._settings.timer_roll_window_slot * self._files.wheel.precision_ms
        kept_ms = self._store.settings.file_reserved_time * _HOUR_MS
        return min(window_ms, max(kept_ms // 3 * 2, _HOUR_MS))

    # From the wheel to the topics.

    def _deliver_due(self, now_ms: int) -> bool:
        """True when more is due than one tick may deliver."""
        budget = MAX_A_TICK
        while budget > 0:
            slot = self._slot
            assert slot is not None
            before = budget
            while budget > 0 and (taken := slot.take(now_ms)) is not None:
                self._deliver(*taken, now_ms)
                self._saving.changed = True
                budget -= effort(len(taken[1].raw))
            if budget <= 0:
                break
            budget = slot.prepare(budget)
            if slot.empty:
                self._late = None
                until_ms = self._may_open_until(now_ms)
                if slot.time_ms >= until_ms:
                    return False
                self._advance(slot, until_ms)
                budget -= 1
            elif budget == before:
                if slot.all_read and slot.time_ms <= now_ms:
                    self._late = None
                return False  # what is left is due later
        return True

    def _may_open_until(self, now_ms: int) -> int:
        """The last slot that may be opened now."""
        this_ms = self._files.wheel.floor(now_ms)
        if self._rolled is None:
            return this_ms
        end, first_ms = self._rolled
        if self._files.progress.queue_offset >= end:
            self._rolled = None
            return this_ms
        return min(this_ms, first_ms - self._files.wheel.precision_ms)

    def _advance(self, slot: OpenSlot, this_ms: int) -> None:
        """The open slot is done: the next one that has messages is opened, or the one of this moment."""
        if slot.lost:
            self._store.problems.append(f"timers: {slot.lost} messages due at {slot.time_ms} are gone from the commit log")
        self._saving.changed |= slot.used
        wheel, progress = self._files.wheel, self._files.progress
        next_ms = slot.time_ms + wheel.precision_ms
        used_ms = wheel.next_used(next_ms, this_ms) if next_ms < this_ms else None
        progress.read_time_ms = this_ms if used_ms is None else used_ms
        self._open_slot()

    def _open_slot(self) -> None:
        files = self._files
        chain = files.wheel.get(files.progress.read_time_ms)
        last = NONE if chain is None else chain.last
        self._slot = slot = OpenSlot(
            files.progress.read_time_ms, last, files.log, self._store, files.wheel.precision_ms, self.metrics.left
        )
        for identity, out_ms in self._markers_coming.items():
            if out_ms <= slot.time_ms:
                slot.recall(identity)

    def _deliver(self, entry: TimerEntry, record: DeferredRecord, now_ms: int) -> None:
        stamps = {"TIMER_ENQUEUE_MS": str(entry.written_ms), "TIMER_DEQUEUE_MS": str(now_ms)}
        if entry.magic & ROLL:
            topic, queue_id = TIMER_TOPIC, 0
            stamps["TIMER_ROLL_TIMES"] = str((record.number(b"TIMER_ROLL_TIMES") or 0) + 1)
        else:
            topic, queue_id = record.text(b"REAL_TOPIC") or TIMER_TOPIC, record.number(b"REAL_QID") or 0
        message = record.message(topic, queue_id)
        if message is None or (topic == TIMER_TOPIC and not entry.magic & ROLL):
            self._store.problems.append(f"timers: the message at {record.physical_offset} is damaged and is not delivered")
            return
        stamped = with_names(message.properties, stamps)
        if len(stamped) <= properties.MAX_BYTES:
            message.properties = stamped
        try:
            self._inner.deliver(message, now_ms)
        except ValueError as error:
            self._store.problems.append(f"timers: the message at {record.physical_offset} cannot be delivered: {error}")
            return
        if entry.magic & ROLL:
            first_ms = self._files.wheel.floor(record.number(b"TIMER_OUT_MS") or 0)
            self._rolled = (message.queue_offset + 1, first_ms if self._rolled is None else min(first_ms, self._rolled[1]))

    # What operators and replicas ask for.

    def checkpoint(self) -> bytes | None:
        """How far the timers are on the disk, as Apache's brokers tell each other; None when they are switched off."""
        if not self._settings.timer_wheel_enable:
            return None
        return (self._copied or self._files.saved).encode_fields()

    def figures(self, now_ms: int) -> dict[str, int | float]:
        """For the state of the broker, under Apache's names."""
        progress = self._files.progress
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        entering, leaving = self.metrics.rates()
        return {
            "timerReadBehind": 0 if self._slot is None else max(now_ms - progress.read_time_ms, 0) // 1000,
            "timerOffsetBehind": 0 if queue is None else max(queue.max_offset - progress.queue_offset, 0),
            "timerCongestNum": self.metrics.waiting,
            "timerEnqueueTps": entering,
            "timerDequeueTps": leaving,
        }

    def waiting(self, now_ms: int, ahead_ms: int) -> Iterator[tuple[int, int]]:
        """(moment, messages) of the wheel's slots from now on, as far ahead as that."""
        if self._slot is not None:
            this_ms = self._files.wheel.floor(now_ms)
            yield from self._files.wheel.waiting(this_ms, this_ms + ahead_ms)

    # On the disk.

    def close(self, now_ms: int) -> None:
        """A clean stop. Everything appended must be durable by now."""
        if self._slot is None:
            return
        try:
            self._saving.finish(self._slot, now_ms)
        except OSError as error:
            self._fail(f"timer files cannot be written: {error}; the next start recovers them")
            return
        self._slot = None

    def _expire(self) -> None:
        job = self._files.expire(self._store.min_offset)
        if job is not None:
            self._store.submit(job)
        self._report()

    def _queue_offset_of(self, physical_offset: int) -> int | None:
        record = self._record_at(physical_offset)
        return record.queue_offset if record is not None and record.topic == TIMER_TOPIC else None

    def _real_topic_of(self, physical_offset: int) -> str | None:
        record = self._record_at(physical_offset)
        name = None if record is None else find(record.properties, b"REAL_TOPIC")
        return None if name is None else name.decode("utf-8", "replace")

    def _record_at(self, physical_offset: int) -> Record | None:
        raw = self._store.read_record(physical_offset)
        try:
            return None if raw is None else decode(raw, check_crc=False)
        except ProtocolError:
            return None

    def _fail(self, text: str) -> None:
        if text != self._problem:
            self._store.problems.append(text)
            self._problem = text

    def _report(self) -> None:
        self._store.problems.extend(self._files.problems)
        self._files.problems.clear()
