"""Processes killed with SIGKILL: every acknowledged message survives at its queue offset, and nothing else exists."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire import record

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
ROUNDS = 4

WRITER = """
import queue, sys, time
from tests.store.test_kill import HOST, settings_for
from firearrow.store.message_store import MessageStore

store = MessageStore(settings_for(sys.argv[1], sys.argv[2]), store_host=HOST, now_ms=lambda: int(time.time() * 1000))
store.open()
flushed = queue.SimpleQueue()
store.start(flushed.put, flushed.put)
queues = [store.queue("Orders", number) for number in range(3)]
print("ready", flush=True)
for number in range(1_000_000):
    now = int(time.time() * 1000)
    lines = []
    for i in range(1 + number % 40):
        target = queues[(number + i) % 3]
        lines.append(f"{target.queue_id} {target.next_offset}")
        body = f"{target.queue_id} {target.next_offset}".encode().ljust(20 + i * 7, b".")
        store.append(target, body, b"UNIQ_KEY\\x01u\\x02", 0, flag=0, sys_flag=0, born_ms=now, born_host=HOST, store_ms=now)
    end = store.write_out().end_offset
    if store.settings.sync_flush:
        while store.flushed_offset < end:
            flushed.get()
    store.confirm(end)
    print("\\n".join(lines), flush=True)
    store.tick(now)
"""


def settings_for(root: str, flush_disk_type: str) -> StoreSettings:
    return StoreSettings(
        store_path_root_dir=root,
        mapped_file_size_commit_log=200_000,
        mapped_file_size_consume_queue=4000,
        max_hash_slot_num=100,
        max_index_num=1000,
        flush_disk_type=flush_disk_type,
        flush_interval_consume_queue=50,
        flush_consume_queue_thorough_interval=100,
    )


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_every_acknowledged_message_survives_kill_9(flush_disk_type: str, tmp_path: Path) -> None:
    acknowledged = [0, 0, 0]
    for number in range(ROUNDS):
        for queue_id, offset in written_until_killed(tmp_path, flush_disk_type, 0.1 + 0.1 * number):
            acknowledged[queue_id] = max(acknowledged[queue_id], offset + 1)
        settings = settings_for(str(tmp_path), flush_disk_type)
        store = MessageStore(settings, store_host=HOST, now_ms=lambda: int(time.time() * 1000))
        report = store.open()
        assert not report.clean
        for queue_id in range(3):
            queue = store.queue("Orders", queue_id)
            assert queue.min_offset == 0
            assert queue.max_offset >= acknowledged[queue_id]
            offset = 0 if number == ROUNDS - 1 else max(0, acknowledged[queue_id] - 2000)
            acknowledged[queue_id] = queue.max_offset
            while offset < queue.max_offset:
                result = store.get_messages(queue, offset, 32)
                for found in record.decode_all(result.body):
                    assert (found.queue_id, found.queue_offset) == (queue_id, offset)
                    assert found.body.startswith(b"%d %d." % (queue_id, offset))
                    offset += 1
                assert offset == result.next_begin_offset
        store.close()
    assert sum(acknowledged) > 0


def written_until_killed(root: Path, flush_disk_type: str, after_s: float) -> list[tuple[int, int]]:
    """Return queue id and queue offset of all messages the writer reported before the kill."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), flush_disk_type],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        deadline = time.monotonic() + after_s
        lines = []
        while time.monotonic() < deadline:
            lines.append(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        process.stdout.close()
        process.wait(10)
    reported = "".join(lines) + rest
    whole = reported[: reported.rfind("\n") + 1].split("\n")
    return [(int(queue_id), int(offset)) for queue_id, offset in (line.split() for line in whole if line)]
