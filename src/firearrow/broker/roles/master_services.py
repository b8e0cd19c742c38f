"""Services of a master: delivery of deferred messages (delay levels, timers, transactions) and deduplication of sends.

A member of an elected group starts these services on election, resuming from its predecessor's progress, and stops them on
demotion. `work` and `save` are called every 100 ms; deliveries that are due earlier have timers of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from firearrow.broker.context import BrokerContext
from firearrow.broker.dedup.snapshot import DedupFile
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.broker.transaction.service import Transactions
from firearrow.wire import fastjson

TICK_S = 0.1
DELAY_SAVE_MS = 10_000
DELAY_SNAPSHOT_MS = 500  # in an elected group, whose master may change at any time
KEY_DEDUP_MS = 10_000  # after an election
FROZEN_CLOCK_MS = 10


class MasterServices:
    def __init__(
        self,
        context: BrokerContext,
        transactions: Transactions,
        sends: SendHandler,
        config: ConfigFiles,
        now_ms: Callable[[], int],
    ) -> None:
        self._context = context
        self._config = config
        self._now_ms = now_ms
        self._due_timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0  # the time at which it was set
        self._transaction_timer: asyncio.TimerHandle | None = None
        # Log offset that must be durable first, text of delayOffset.json, the offsets in it
        self._delay_snapshot: tuple[int, bytes, list[int]] | None = None
        self._next_delay_ms = 0
        self._key_dedup_until_ms = 0
        self._delay, self._timers = context.delay, context.timers
        if context.settings.enable_d_leger_commit_log:
            self._delay.confirm(self._delay.offsets())
        self._transactions = transactions
        self._sends = sends
        self._dedup_file = self._load_dedup()
        if not context.role.is_slave:
            self._delay.resume()

    def _load_dedup(self) -> DedupFile:
        """Restore the state that recognises repeated sends."""
        file = DedupFile(self._sends.dedup, self._context.store, self._config)
        file.load(self._now_ms())
        return file

    # Every 100 ms.

    def work(self) -> None:
        self._deliver_due()
        self._process_transactions()

    def save(self, now: int) -> None:
        settings, is_slave = self._context.settings, self._context.role.is_slave
        if now >= self._next_delay_ms and not is_slave:
            self._next_delay_ms = now + (DELAY_SNAPSHOT_MS if settings.enable_d_leger_commit_log else DELAY_SAVE_MS)
            self._snapshot_delay_offsets(now)
        self._save_delay_offsets()
        if is_slave:
            self._dedup_file.follow()
            return
        self._dedup_file.tick(now)
        if self._key_dedup_until_ms and now >= self._key_dedup_until_ms:
            self._key_dedup_until_ms = 0
            self._sends.disable_key_dedup()

    def next_due_ms(self, until_ms: int) -> int | None:
        """Return when the next message is delivered or the next transaction checked, as far as known."""
        due = (self._delay.next_due_ms(), self._timers.first_due_ms(until_ms), self._transactions.next_due_ms())
        return min((moment for moment in due if moment is not None), default=None)

    def _deliver_due(self, *, timed: bool = False) -> None:
        """Deliver due messages. Those due before the next tick get a timer (`timed`: called by it)."""
        loop, now = asyncio.get_running_loop(), self._now_ms()
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None
        if self._delay.tick(now) | self._timers.tick(now):
            self._due_timer = loop.call_later(0, self._deliver_due)
            return
        waiting = [due_ms for due_ms in (self._delay.next_due_ms(), self._timers.next_due_ms()) if due_ms is not None]
        due_ms = min(waiting, default=None)
        if due_ms is not None and due_ms - now < TICK_S * 1000:
            # The clock is the same although the timer has fired: it is moved by hand, so do not poll it.
            least_ms = FROZEN_CLOCK_MS if timed and now == self._armed_ms else 1
            self._armed_ms = now
            self._due_timer = loop.call_later(max(due_ms - now, least_ms) / 1000, lambda: self._deliver_due(timed=True))

    def _process_transactions(self) -> None:
        if self._transactions.tick(self._now_ms()) and self._transaction_timer is None:
            self._transaction_timer = asyncio.get_running_loop().call_later(0, self._continue_transactions)

    def _continue_transactions(self) -> None:
        self._transaction_timer = None
        self._process_transactions()

    def _snapshot_delay_offsets(self, now: int) -> None:
        if self._delay.has_changed() and (self._delay_snapshot is None or not self._context.settings.enable_d_leger_commit_log):
            offsets, text = self._delay.offsets(), fastjson.dumps_pretty(self._delay.to_json(now))
            self._delay_snapshot = (self._context.store.appended_offset, text, offsets)

    def _save_delay_offsets(self) -> None:
        """Save offsets whose deliveries are durable: after a power failure, others would be lost."""
        if self._delay_snapshot is not None and self._context.store.flushed_offset >= self._delay_snapshot[0]:
            (_, text, offsets), self._delay_snapshot = self._delay_snapshot, None
            if self._context.settings.enable_d_leger_commit_log:
                self._delay.confirm(offsets)
            self._context.store.submit(lambda: self._config.save_text("delayOffset.json", text))

    # When the master changes.

    def activate(self, now: int) -> None:
        """Start the services on election, resuming from the progress of the previous master, as after a restart."""
        self._dedup_file.follow()
        # Producers without an answer from the previous master send again, and their messages may have been stored.
        if self._sends.enable_key_dedup(KEY_DEDUP_MS):
            self._dedup_file.learn_newest()
        self._key_dedup_until_ms = now + KEY_DEDUP_MS
        self._delay.resume()
        self._timers.activate(now)
        self._transactions.activate(now)

    def deactivate(self) -> None:
        self.cancel()
        self._due_timer = self._transaction_timer = self._delay_snapshot = None
        self._delay.revert_to_confirmed()
        self._sends.disable_key_dedup()
        self._key_dedup_until_ms = 0
        self._sends.reset_dedup()
        self._dedup_file = self._load_dedup()

    # The end.

    def cancel(self) -> None:
        for timer in (self._due_timer, self._transaction_timer):
            if timer is not None:
                timer.cancel()

    def stop(self) -> None:
        """Start nothing new."""
        if not self._context.role.is_slave:
            self._transactions.stop(self._now_ms())

    def close(self, now: int) -> None:
        """Save the progress of all services. Call it when the log is flushed for the last time."""
        is_slave = self._context.role.is_slave
        if is_slave:
            self._dedup_file.follow()
        else:
            self._transactions.close(now)
            self._snapshot_delay_offsets(now)
        self._save_delay_offsets()
        self._dedup_file.note()
        self._dedup_file.save()
        if not is_slave:
            self._timers.close(now)
