"""A store with timers in it, under a clock that the test turns; stopped, killed and started again as the test likes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firearrow.broker.deferred.delay_levels import DelayService
from firearrow.broker.deferred.router import DeferralRouter
from firearrow.broker.message import BrokerMessage
from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.send.internal import InternalWriter
from firearrow.broker.settings import BrokerSettings
from firearrow.broker.timer.service import TimerService
from firearrow.store.filesystem import Disk
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire import properties
from firearrow.wire.message_ids import host_bytes
from firearrow.wire.names import TIMER_TOPIC
from firearrow.wire.record import Record, decode_all

T0 = 1_700_000_000_000
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
BORN = host_bytes("10.1.2.3", 4567)
HOST = host_bytes("127.0.0.1", 10911)


class Timing:
    def __init__(
        self,
        root: Path | str,
        disk: Disk | None = None,
        now_ms: int = T0,
        store_settings: StoreSettings | None = None,
        **settings: Any,
    ) -> None:
        self.now = now_ms
        self.disk = disk
        self.store_settings = store_settings or StoreSettings(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=4 * 1024 * 1024,
            mapped_file_size_consume_queue=20_000,
            message_index_enable=False,
            max_transfer_count_on_message_in_memory=1000,
            max_transfer_bytes_on_message_in_memory=1 << 20,
        )
        self.settings = BrokerSettings(broker_name="broker-a", **({"mapped_file_size_timer_log": 8192} | settings))
        self.flushing = True  # False: as under ASYNC_FLUSH, when the disk takes its time
        self.start()

    def start(self) -> None:
        self.store = MessageStore(self.store_settings, disk=self.disk, store_host=HOST, now_ms=lambda: self.now)
        report = self.store.open()
        self.inner = InternalWriter(self.store, BrokerStats("C", self.now), lambda: None)
        self.timers = TimerService(
            self.settings, self.store, self.inner, clean=report.clean, now_ms=self.now, active=not self.settings.is_slave
        )
        self.deferral = DeferralRouter(self.inner, DelayService([], self.store, self.inner), self.timers)

    def stop(self) -> None:
        self.end_round()
        self.timers.close(self.now)
        self.store.close()

    def restart(self, *, after_ms: int = 0) -> None:
        self.stop()
        self.now += after_ms
        self.start()

    def put(self, body: bytes, *, at_ms: int | None = None, topic: str = "Orders", queue_id: int = 2, **names: str) -> None:
        """A producer's message, stored."""
        self.append(body, at_ms=at_ms, topic=topic, queue_id=queue_id, **names)
        self.end_round()

    def append(self, body: bytes, *, at_ms: int | None = None, topic: str = "Orders", queue_id: int = 2, **names: str) -> None:
        if at_ms is not None:
            self.now = at_ms
        raw = properties.encode(names)
        message = BrokerMessage(topic, queue_id, body, raw, 7, 0, T0 - 5, BORN, reconsume_times=3, internal=False)
        message.unique_key = names.get("UNIQ_KEY", "").encode()
        self.deferral.defer(message, self.now)
        self.inner.deliver(message, self.now)

    def end_round(self) -> None:
        if self.store.write_out() is not None:
            self.store.confirm(self.store.flush() if self.flushing else self.store.max_offset)

    def at(self, now_ms: int) -> list[bytes]:
        """Return all messages delivered by then."""
        self.go(now_ms)
        return [record.body for record in self.delivered()]

    def go(self, now_ms: int) -> None:
        """It is this late now; the timers do all they can."""
        self.now = now_ms
        for _ in range(100_000):
            more = self.timers.tick(now_ms)
            before = self.store.max_offset
            self.end_round()
            if not more and self.store.max_offset == before:
                return
        raise AssertionError("the timers do not come to rest")

    def delivered(self, topic: str = "Orders", queue_id: int = 2) -> list[Record]:
        queue = self.store.queue(topic, queue_id)
        found: list[Record] = []
        while (result := self.store.get_messages(queue, len(found), 1000)).count:
            found += decode_all(result.body)
        return found

    def waiting(self) -> list[Record]:
        return self.delivered(TIMER_TOPIC, 0)


def names_of(record: Record) -> dict[str, str]:
    return properties.parse(record.properties)
