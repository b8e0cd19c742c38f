"""A store driven through sends, flushes and crashes, with a model of its expected content.

The model keeps every record appended to each queue, in order. `acknowledged` counts those confirmed to the sender. After a
restart a queue may hold more than was acknowledged (written, but not confirmed), never less, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from firearrow.store.commitlog.reader import GetStatus
from firearrow.store.message_store import MessageStore
from firearrow.store.recovery import RecoveryReport
from firearrow.store.retention import MovedMin
from firearrow.store.settings import StoreSettings
from firearrow.wire import record
from firearrow.wire.java_hash import tags_code_of
from tests.store.simdisk import SimulatedDisk

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
HOST_V6 = bytes(range(16)) + b"\x00\x00\x2a\x9f"
ROOT = "/store"
LONG_TOPIC = "%RETRY%" + "g" * 140


def small_settings(flush_disk_type: str = "SYNC_FLUSH") -> StoreSettings:
    """Return settings with small files, so that a short history crosses many boundaries."""
    return StoreSettings(
        store_path_root_dir=ROOT,
        mapped_file_size_commit_log=8192,
        mapped_file_size_consume_queue=200,
        max_hash_slot_num=7,
        max_index_num=30,
        flush_disk_type=flush_disk_type,
        flush_consume_queue_thorough_interval=3000,
        max_transfer_count_on_message_in_memory=1000,
    )


class History:
    """Events of a store's life, and the checks that must hold after each restart."""

    def __init__(self, settings: StoreSettings | None = None) -> None:
        self.now_ms = 1_700_000_000_000
        self.disk = SimulatedDisk(lambda: self.now_ms)
        self.settings = settings or small_settings()
        self.sent: dict[tuple[str, int], list[bytes]] = {}
        self.keys: dict[tuple[str, str], int] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.count = 0
        self.moved: list[MovedMin] = []
        self.store = self._new_store()
        self.report: RecoveryReport = self.store.open()

    # Events

    def send(self, topic: str, queue_id: int, size: int, host: bytes = HOST) -> None:
        self.count += 1
        self.now_ms += 1
        queue = self.store.queue(topic, queue_id)
        sent = self.sent.setdefault((topic, queue_id), [])
        assert queue.next_offset == len(sent)
        body = (b"%d:" % self.count).ljust(size, b"x")
        key = f"u{self.count}"
        properties = f"UNIQ_KEY\x01{key}\x02TAGS\x01T{self.count % 3}\x02".encode()
        offset = self.store.append(
            queue, body, properties, tags_code_of(properties),
            flag=self.count, sys_flag=0, born_ms=self.now_ms, born_host=host, store_ms=self.now_ms,
        )  # fmt: skip
        sent.append(self._record(topic, queue_id, len(sent), offset, body, properties, self.count, host))
        self.keys[topic, key] = offset

    def send_batch(self, topic: str, queue_id: int, sizes: list[int], host: bytes = HOST) -> None:
        self.now_ms += 1
        queue = self.store.queue(topic, queue_id)
        sent = self.sent.setdefault((topic, queue_id), [])
        messages = []
        for size in sizes:
            self.count += 1
            properties = f"UNIQ_KEY\x01u{self.count}\x02".encode()
            messages.append((self.count, (b"%d:" % self.count).ljust(size, b"y"), properties, 0))
        offsets = self.store.append_batch(queue, messages, sys_flag=0, born_ms=self.now_ms, born_host=host, store_ms=self.now_ms)
        assert len({offset // self.settings.mapped_file_size_commit_log for offset in offsets}) <= 1
        for (flag, body, properties, _), offset in zip(messages, offsets, strict=True):
            sent.append(self._record(topic, queue_id, len(sent), offset, body, properties, flag, host))
            self.keys[topic, f"u{flag}"] = offset

    def write(self) -> None:
        self.store.write_out()
        if not self.settings.sync_flush:
            self.confirm(self.store.max_offset)

    def flush(self) -> None:
        self.confirm(self.store.flush())

    def confirm(self, offset: int) -> None:
        for queue, start, end in self.store.confirm(offset):
            assert self.acknowledged.get((queue.topic, queue.queue_id), 0) == start
            self.acknowledged[queue.topic, queue.queue_id] = end

    def tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.store.tick(self.now_ms)
        assert self.store.problems == []

    def close(self) -> None:
        self.store.close()
        for key, sent in self.sent.items():
            self.acknowledged[key] = len(sent)
        self.reopen(self.disk.copy())

    def kill(self) -> None:
        self.reopen(self.disk.copy())

    def power_cut(self, seed: int) -> None:
        self.reopen(self.disk.power_cut(random.Random(seed)))

    def reopen(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.store = self._new_store()
        self.report = self.store.open()

    # Checks

    def check(self, *, acknowledged_survive: bool = True) -> None:
        """Check that every queue holds a prefix of the records sent to it, and at least the acknowledged ones."""
        if self.report.table is not None:
            assert self.report.rebuilt_queues == 0, "a crash must not require a scan of the whole log"
        for queue in self.store.queues():
            key = (queue.topic, queue.queue_id)
            sent = self.sent.get(key, [])
            assert queue.min_offset == 0
            assert queue.next_offset == queue.max_offset <= len(sent), f"{queue} holds more than was sent"
            if acknowledged_survive:
                assert queue.max_offset >= self.acknowledged.get(key, 0), f"{queue} lost acknowledged messages"
            assert self.pulled(queue.topic, queue.queue_id) == sent[: queue.max_offset]
            self.sent[key] = sent[: queue.max_offset]
            self.acknowledged[key] = queue.max_offset
        for key in self.sent:
            if self.store.find_queue(*key) is None:
                assert not self.acknowledged.get(key) or not acknowledged_survive, f"{key} is missing"
                self.sent[key] = []
                self.acknowledged[key] = 0

    def check_keys(self) -> None:
        for (topic, key), offset in self.keys.items():
            if offset < self.store.confirm_offset:
                records = self.store.query(topic, key, 64, 0, 1 << 62).records
                assert offset in [record.decode(data).physical_offset for data in records], f"{topic} {key}"
        self.keys = {name: offset for name, offset in self.keys.items() if offset < self.store.confirm_offset}

    def pulled(self, topic: str, queue_id: int, max_count: int = 7) -> list[bytes]:
        queue = self.store.find_queue(topic, queue_id)
        records: list[bytes] = []
        offset = 0
        while queue is not None and offset < queue.max_offset:
            result = self.store.get_messages(queue, offset, max_count)
            assert result.status is GetStatus.FOUND
            found = [record.encode(r) for r in record.decode_all(result.body)]
            assert len(found) == result.count
            records += found
            offset = result.next_begin_offset
        return records

    def _new_store(self) -> MessageStore:
        return MessageStore(
            self.settings,
            disk=self.disk,
            store_host=HOST,
            now_ms=lambda: self.now_ms,
            memory_bytes=1 << 33,
            on_min_moved=self.moved.extend,
        )

    def _record(
        self, topic: str, queue_id: int, queue_offset: int, offset: int, body: bytes, properties: bytes, flag: int, host: bytes
    ) -> bytes:
        whole = record.Record(
            topic=topic, body=body, properties=properties, queue_id=queue_id, flag=flag, queue_offset=queue_offset,
            physical_offset=offset, sys_flag=0x10 if len(host) == 20 else 0, born_timestamp=self.now_ms, born_host=host,
            store_timestamp=self.now_ms, store_host=HOST, version=2 if len(topic) > 127 else 1,
        )  # fmt: skip
        return record.encode(whole)


Event = Callable[[History], None]
