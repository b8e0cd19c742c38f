"""MessageStore: groups, visibility, errors, lookups, threads and files."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import pytest

from firearrow.store.checkpoint import Checkpoint
from firearrow.store.commitlog.reader import GetStatus
from firearrow.store.errors import NotWritableError, StoreError, StoreLockedError
from firearrow.store.filesystem import RealDisk
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire import record
from tests.store.history import HOST, HOST_V6, ROOT, History, small_settings
from tests.store.simdisk import SimulatedDisk

NOW_MS = 1_700_000_000_000


def real_store(root: Path, flush_disk_type: str = "SYNC_FLUSH") -> MessageStore:
    settings = small_settings(flush_disk_type)
    settings.store_path_root_dir = str(root)
    return MessageStore(settings, disk=RealDisk(), store_host=HOST, now_ms=lambda: NOW_MS)


def put(store: MessageStore, topic: str, queue_id: int, body: bytes, *, store_ms: int = NOW_MS, tags_code: int = 0) -> int:
    queue = store.queue(topic, queue_id)
    return store.append(queue, body, b"", tags_code, flag=0, sys_flag=0, born_ms=NOW_MS, born_host=HOST, store_ms=store_ms)


# Groups and visibility


def test_message_becomes_visible_when_its_group_is_confirmed() -> None:
    history = History()
    store = history.store
    queue = store.queue("Orders", 0)
    put(store, "Orders", 0, b"a")
    put(store, "Orders", 1, b"b")
    assert (queue.next_offset, queue.max_offset) == (1, 0)
    assert history.disk.file_size(f"{ROOT}/commitlog/{0:020d}") == 8192
    assert not any(history.disk.read_bytes(f"{ROOT}/commitlog/{0:020d}"))

    first = store.write_out()
    put(store, "Orders", 0, b"c")
    second = store.write_out()
    assert first is not None
    assert second is not None
    assert store.get_messages(queue, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.read_record(0) is None

    assert store.confirm(first.end_offset - 1) == []
    assert store.confirm(first.end_offset) == [(queue, 0, 1), (store.queue("Orders", 1), 0, 1)]
    assert store.get_messages(queue, 0, 32).count == 1
    assert store.confirm(second.end_offset) == [(queue, 1, 2)]
    assert store.get_messages(queue, 0, 32).count == 2
    assert store.write_out() is None


def test_group_needs_one_write_per_segment() -> None:
    history = History(small_settings("ASYNC_FLUSH"))
    for _ in range(10):
        put(history.store, "Orders", 0, b"x" * 100)
    writes = history.disk.writes
    history.store.write_out()
    assert history.disk.writes - writes == 1
    for _ in range(100):
        put(history.store, "Orders", 0, b"x" * 100)
    history.store.write_out()
    assert history.disk.writes - writes - 1 == history.store.max_offset // 8192 + 1


def test_every_full_segment_ends_with_a_blank_of_at_least_8_bytes() -> None:
    for size in range(300, 330):
        history = History()
        for _ in range(40):
            put(history.store, "Orders", 0, b"x" * size)
        history.store.write_out()
        data = history.disk.read_bytes(f"{ROOT}/commitlog/{0:020d}")
        at = 0
        while int.from_bytes(data[at + 4 : at + 8], "big") != 0xCBD43194:
            at += int.from_bytes(data[at : at + 4], "big")
        assert int.from_bytes(data[at : at + 4], "big") == 8192 - at >= 8
        assert 8192 - at < size + 91 + len("Orders") + 8  # another one would not have fitted


def test_message_larger_than_a_segment_is_rejected_without_changes() -> None:
    history = History()
    queue = history.store.queue("Orders", 0)
    with pytest.raises(ValueError, match="does not fit into a commit-log file"):
        put(history.store, "Orders", 0, b"x" * 8100)
    with pytest.raises((struct.error, ValueError)):
        history.store.append(queue, b"", b"", 0, flag=1 << 40, sys_flag=0, born_ms=0, born_host=HOST, store_ms=0)
    assert (queue.next_offset, bytes(queue.tail), history.store.write_out()) == (0, b"", None)


def test_oversized_properties_are_rejected() -> None:
    settings = small_settings()
    settings.mapped_file_size_commit_log = 65536
    store = History(settings).store
    queue = store.queue("Orders", 0)
    with pytest.raises(ValueError, match="32767"):
        store.append(queue, b"", b"p" * 32768, 0, flag=0, sys_flag=0, born_ms=0, born_host=HOST, store_ms=0)
    with pytest.raises(ValueError, match="32767"):
        store.append_batch(queue, [(0, b"", b"p" * 32768, 0)], sys_flag=0, born_ms=0, born_host=HOST, store_ms=0)
    assert (queue.next_offset, bytes(queue.tail), store.write_out()) == (0, b"", None)


def test_prepared_and_rolled_back_messages_get_no_queue_entry() -> None:
    history = History()
    store = history.store
    queue = store.queue("Half", 0)
    for sys_flag in (0x4, 0xC, 0x8):
        store.append(
            queue, b"h", b"UNIQ_KEY\x01k%d\x02" % sys_flag, 0,
            flag=0, sys_flag=sys_flag, born_ms=0, born_host=HOST, store_ms=NOW_MS,
        )  # fmt: skip
    store.write_out()
    store.confirm(store.flush())
    assert queue.max_offset == 1
    assert record.decode(store.get_messages(queue, 0, 1).body).sys_flag == 0x8
    assert [len(store.query("Half", f"k{flag}", 9, 0, 1 << 62).records) for flag in (4, 12, 8)] == [1, 0, 1]
    history.kill()
    assert history.store.queue("Half", 0).max_offset == 1


def test_records_with_ipv6_store_host_and_long_topic_are_readable() -> None:
    store = MessageStore(small_settings(), disk=SimulatedDisk(), store_host=HOST_V6, now_ms=lambda: NOW_MS)
    store.open()
    topic = "%RETRY%" + "g" * 200
    for host in (HOST, HOST_V6):
        queue = store.queue(topic, 3)
        store.append(queue, b"body", b"a\x01b\x02", 5, flag=1, sys_flag=0, born_ms=2, born_host=host, store_ms=NOW_MS)
        store.append_batch(
            queue, [(1, b"one", b"", 0), (2, b"two", b"", 0)], sys_flag=0, born_ms=2, born_host=host, store_ms=NOW_MS
        )
    store.write_out()
    store.confirm(store.flush())
    records = record.decode_all(store.get_messages(queue, 0, 32).body)
    assert [(r.version, r.topic, r.sys_flag, r.born_host, r.store_host) for r in records] == [
        (2, topic, 0x20, HOST, HOST_V6),
        (2, topic, 0x20, HOST, HOST_V6),
        (2, topic, 0x20, HOST, HOST_V6),
        (2, topic, 0x30, HOST_V6, HOST_V6),
        (2, topic, 0x30, HOST_V6, HOST_V6),
        (2, topic, 0x30, HOST_V6, HOST_V6),
    ]
    assert store.reader.store_time(queue, 3) == NOW_MS


def test_topics_outside_the_directory_are_rejected() -> None:
    store = History().store
    for topic in ("..", ".", "a/b", "", "x\0y", "x\ny", "t" * 256):
        with pytest.raises(ValueError, match="directory"):
            store.queue(topic, 0)
    with pytest.raises(ValueError, match="queue id -1"):
        store.queue("Orders", -1)


# Errors


def test_failed_write_discards_only_pending_messages() -> None:
    history = History()
    store = history.store
    queue = store.queue("Orders", 0)
    put(store, "Orders", 0, b"written, not confirmed")
    written = store.write_out()
    assert written is not None
    history.disk.fail("pwrite", "/commitlog/")
    put(store, "Orders", 0, b"pending")
    put(store, "Orders", 1, b"pending")
    with pytest.raises(NotWritableError):
        store.write_out()
    assert (queue.next_offset, queue.max_offset, store.queue("Orders", 1).next_offset) == (1, 0, 0)
    history.disk.heal()
    assert store.confirm(store.max_offset) == [(queue, 0, 1)]
    assert store.get_messages(queue, 0, 9).count == 1
    store.close()
    assert history.disk.exists(f"{ROOT}/abort")  # not a clean stop


def test_failed_sync_is_final() -> None:
    history = History()
    store = history.store
    put(store, "Orders", 0, b"a")
    store.write_out()
    history.disk.fail("fdatasync", "/commitlog/")
    with pytest.raises(StoreError, match="fdatasync"):
        store.flush()
    history.disk.heal()
    with pytest.raises(StoreError, match="fdatasync"):
        store.flush()
    assert not store.writable
    assert store.refusal is not None
    assert "check the disk" in store.refusal


def test_messages_are_refused_while_queue_files_cannot_be_written() -> None:
    history = History()
    store = history.store
    put(store, "Orders", 0, b"a")
    store.write_out()
    store.confirm(store.flush())
    history.disk.fail("create", "/consumequeue/", 28)
    store.tick(NOW_MS + 5000)
    assert store.refusal is not None
    assert "consume queues" in store.refusal
    assert len(store.problems) == 1
    assert store.get_messages(store.queue("Orders", 0), 0, 1).count == 1
    history.disk.heal()
    store.tick(NOW_MS + 6000)
    assert store.writable


# Reading


@pytest.fixture
def ten() -> MessageStore:
    """A store with ten messages in queue 0 at 10 ms steps, tags 0 and 1 alternately, 100 bytes each."""
    store = History().store
    for i in range(10):
        put(store, "Orders", 0, b"x" * 3, store_ms=NOW_MS + 10 * i, tags_code=i % 2)
        put(store, "Other", 0, b"y" * 50)
    store.write_out()
    store.confirm(store.flush())
    return store


def test_status_of_offsets_inside_and_outside_the_queue(ten: MessageStore) -> None:
    queue = ten.queue("Orders", 0)
    found = [
        (r.status, r.next_begin_offset, r.min_offset, r.max_offset, r.count)
        for r in (ten.get_messages(queue, offset, 4) for offset in (0, 8, 10, 11, -1))
    ]
    assert found == [
        (GetStatus.FOUND, 4, 0, 10, 4),
        (GetStatus.FOUND, 10, 0, 10, 2),
        (GetStatus.OFFSET_OVERFLOW_ONE, 10, 0, 10, 0),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 10, 0, 10, 0),
        (GetStatus.OFFSET_TOO_SMALL, 0, 0, 10, 0),
    ]
    assert ten.get_messages(None, 0, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert ten.get_messages(ten.queue("Orders", 7), 5, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_tags_are_compared_by_their_low_32_bits(ten: MessageStore) -> None:
    queue = ten.queue("Orders", 0)
    odd = ten.get_messages(queue, 0, 32, tag_codes=frozenset({1}))
    assert (odd.count, odd.next_begin_offset) == (5, 10)
    assert [r.queue_offset for r in record.decode_all(odd.body)] == [1, 3, 5, 7, 9]
    two = ten.get_messages(queue, 0, 2, tag_codes=frozenset({1}))
    assert (two.count, two.next_begin_offset) == (2, 4)
    nothing = ten.get_messages(queue, 3, 32, tag_codes=frozenset({7}))
    assert (nothing.status, nothing.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
    put(ten, "Orders", 0, b"", tags_code=(5 << 32) | 9)
    ten.write_out()
    ten.confirm(ten.flush())
    assert ten.get_messages(queue, 10, 1, tag_codes=frozenset({9})).count == 1


def test_pull_ends_at_the_byte_limit_but_returns_at_least_one_message(ten: MessageStore) -> None:
    queue = ten.queue("Orders", 0)
    assert ten.get_messages(queue, 0, 32, max_bytes=1).count == 1
    assert ten.get_messages(queue, 0, 32, max_bytes=300).count == 3
    ten.settings.max_transfer_count_on_message_in_memory = 6
    assert ten.get_messages(queue, 0, 32).count == 6


def test_disk_limits_and_slave_suggestion_far_from_the_end() -> None:
    store = MessageStore(small_settings(), disk=SimulatedDisk(), store_host=HOST, now_ms=lambda: NOW_MS, memory_bytes=1000)
    store.open()
    for _ in range(30):
        put(store, "Orders", 0, b"x" * 3)
    store.write_out()
    store.confirm(store.flush())
    queue = store.queue("Orders", 0)
    far, near = store.get_messages(queue, 0, 32), store.get_messages(queue, 27, 32)
    assert (far.count, far.suggest_slave) == (8, True)
    assert (near.count, near.suggest_slave) == (3, False)


def test_bulk_pull_has_its_own_limits() -> None:
    store = MessageStore(small_settings(), disk=SimulatedDisk(), store_host=HOST, now_ms=lambda: NOW_MS, memory_bytes=1000)
    store.open()
    for number in range(200):
        put(store, "Orders", 0, b"x" * 3, tags_code=number % 2)
        if number % 3 == 0:
            put(store, "Other", 0, b"y" * 50)
    store.write_out()
    store.confirm(store.flush())
    queue = store.queue("Orders", 0)
    everything = store.get_messages(queue, 0, 1000, bulk=True)
    assert [r.queue_offset for r in record.decode_all(everything.body)] == list(range(200))
    assert (everything.count, everything.next_begin_offset) == (200, 200)
    odd = store.get_messages(queue, 0, 1000, tag_codes=frozenset({1}), bulk=True)
    assert [r.queue_offset for r in record.decode_all(odd.body)] == list(range(1, 200, 2))
    assert store.get_messages(queue, 0, 7, bulk=True).count == 7
    store.settings.max_transfer_bytes_of_bulk_pull = 1000
    assert store.get_messages(queue, 5, 1000, bulk=True).count == 10
    store.settings.max_transfer_count_of_bulk_pull = 9
    assert store.get_messages(queue, 5, 1000, bulk=True).count == 9


@pytest.mark.parametrize(
    ("at", "lower", "upper"),
    [(-1, 0, 0), (0, 0, 0), (1, 1, 0), (10, 1, 1), (45, 5, 4), (90, 9, 9), (91, 10, 9), (1000, 10, 9)],
)
def test_offsets_by_time_to_the_millisecond(ten: MessageStore, at: int, lower: int, upper: int) -> None:
    queue = ten.queue("Orders", 0)
    assert ten.reader.offset_by_time(queue, NOW_MS + at) == lower
    assert ten.reader.offset_by_time(queue, NOW_MS + at, upper=True) == upper


def test_store_times(ten: MessageStore) -> None:
    queue = ten.queue("Orders", 0)
    assert ten.reader.earliest_store_time(queue) == NOW_MS
    assert [ten.reader.store_time(queue, offset) for offset in (3, 9, 10, -1)] == [NOW_MS + 30, NOW_MS + 90, None, None]
    assert ten.reader.earliest_store_time(ten.queue("Nothing", 0)) is None


def test_read_record_needs_the_start_of_a_record(ten: MessageStore) -> None:
    entry = ten.queue("Orders", 0).entry(1)
    assert entry is not None
    whole = ten.read_record(entry[0])
    assert whole is not None
    assert record.decode(whole).queue_offset == 1
    assert [ten.read_record(offset) for offset in (entry[0] + 1, -5, ten.max_offset, 1 << 40)] == [None] * 4


def test_query_finds_the_latest_confirmed_messages() -> None:
    history = History()
    history.send("Orders", 0, 10)
    history.write()
    assert history.store.query("Orders", "u1", 9, 0, 1 << 62).records == []
    history.flush()
    result = history.store.query("Orders", "u1", 9, 0, 1 << 62)
    assert result.records == history.sent["Orders", 0]
    assert (result.index_last_offset, result.index_last_update_ms) == (0, history.now_ms)
    assert history.store.query("Orders", "u1", 9, history.now_ms + 1000, 1 << 62).records == []


# Files and threads


def test_files_have_exactly_the_lengths_and_names_that_readers_expect(tmp_path: Path) -> None:
    store = real_store(tmp_path)
    store.open()
    for i in range(60):
        put(store, "Orders", 0, b"x" * 100)
        store.write_out()
        store.confirm(store.flush())
        store.tick(NOW_MS + 2000 * i)
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    assert (tmp_path / "lock").read_bytes() == b"lock"
    store.close()
    sizes = {str(path.relative_to(tmp_path)): path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    assert {name: size for name, size in sizes.items() if not name.startswith("queueTable")} == {
        "checkpoint": 4096,
        "lock": 4,
        "commitlog/00000000000000000000": 8192,
        "commitlog/00000000000000008192": 8192,
        **{f"consumequeue/Orders/0/{n * 200:020d}": 200 for n in range(6)},
    }


def test_checkpoint_after_a_short_run_covers_log_and_queues(tmp_path: Path) -> None:
    store = real_store(tmp_path)
    store.open()
    put(store, "Orders", 0, b"x")
    store.write_out()
    store.confirm(store.flush())
    store.close()
    checkpoint = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert 0 < checkpoint.physic_msg_ms == checkpoint.logics_msg_ms


def test_second_process_is_rejected(tmp_path: Path) -> None:
    store = real_store(tmp_path)
    store.open()
    with pytest.raises(StoreLockedError, match=r"in use by another process.*storePathRootDir"):
        real_store(tmp_path).open()
    pid = os.fork()
    if pid == 0:
        try:
            real_store(tmp_path).open()
        except StoreLockedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    store.close()
    again = real_store(tmp_path)
    assert again.open().clean
    again.close()


def test_flusher_thread_reports_the_group(tmp_path: Path) -> None:
    store = real_store(tmp_path)
    store.open()
    flushed: list[int] = []
    arrived = threading.Event()

    def on_flushed(offset: int) -> None:
        flushed.append(offset)
        arrived.set()

    store.start(on_flushed, lambda error: pytest.fail(str(error)))
    total = 0
    for _ in range(50):
        for _ in range(20):
            put(store, "Orders", 0, b"x" * 50)
            total += 1
        group = store.write_out()
        assert group is not None
        while store.flushed_offset < group.end_offset:
            assert arrived.wait(10)
            arrived.clear()
        store.confirm(flushed[-1])
        store.tick(NOW_MS)
    assert flushed == sorted(flushed)
    assert store.queue("Orders", 0).max_offset == total
    store.close()
    again = real_store(tmp_path)
    report = again.open()
    assert (report.clean, report.problems, report.records) == (True, [], 0)
    assert again.queue("Orders", 0).max_offset == total
    again.close()


def test_async_flush_syncs_periodically(tmp_path: Path) -> None:
    store = real_store(tmp_path, "ASYNC_FLUSH")
    store.open()
    store.start(lambda offset: pytest.fail("nobody waits for the disk"), lambda error: pytest.fail(str(error)))
    put(store, "Orders", 0, b"x")
    group = store.write_out()
    assert group is not None
    assert store.confirm(group.end_offset) == [(store.queue("Orders", 0), 0, 1)]
    assert store.flushed_offset == 0
    store.tick(NOW_MS + 1000)
    store.close()
    assert store.flushed_offset == group.end_offset


def test_defaults_equal_apache_except_flush_disk_type() -> None:
    settings = StoreSettings()
    assert (settings.mapped_file_size_commit_log, settings.consume_queue_file_size) == (1 << 30, 6_000_000)
    assert settings.sync_flush
    settings.mapped_file_size_consume_queue = 6_000_001
    assert settings.consume_queue_file_size == 6_000_020
