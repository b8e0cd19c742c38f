"""Appending the body of a batch send equals appending its messages."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings
from firearrow.wire import batch
from firearrow.wire.errors import ProtocolError
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.message_ids import host_bytes
from tests.store.with_and_without_c import with_and_without_c

__all__ = ["with_and_without_c"]  # for all tests here

HOST = host_bytes("127.0.0.1", 10911)
BORN = host_bytes("10.0.0.1", 5)
BORN_V6 = host_bytes("fe80::1", 5)
NAMES = [b"TAGS", b"MYTAGS", b"KEYS", b"W"]


def opened(path: Path) -> MessageStore:
    settings = StoreSettings(store_path_root_dir=str(path), mapped_file_size_commit_log=64 * 1024)
    store = MessageStore(settings, store_host=HOST, now_ms=lambda: 7)
    store.open()
    return store


def some_batch(rng: random.Random) -> bytes:
    messages = []
    for _ in range(rng.randrange(1, 40)):
        names = [
            rng.choice(NAMES) + b"\x01" + rng.choice([b"", b"a", b"bc", b"a\x01"]) + b"\x02" for _ in range(rng.randrange(4))
        ]
        messages.append((rng.randrange(9), rng.randbytes(rng.randrange(200)), b"".join(names)))
    return batch.join(messages)


def test_batch_body_equals_a_batch_of_split_messages(tmp_path: Path) -> None:
    rng = random.Random(7)
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    for number in range(200):  # some of them over the end of a segment
        body = some_batch(rng)
        born = BORN_V6 if number % 17 == 0 else BORN
        said: dict[str, Any] = {"sys_flag": 0, "born_ms": number, "born_host": born, "store_ms": 7, "reconsume_times": number % 3}
        messages = [(flag, text, raw, tags_code_of(raw)) for flag, text, raw in batch.split(body)]
        assert one.append_batch_body(one.queue("T", number % 3), body, **said) == other.append_batch(
            other.queue("T", number % 3), messages, **said
        )
        for store in (one, other):
            group = store.write_out()
            assert group is not None
            store.confirm(group.end_offset)
    assert one.max_offset == other.max_offset > 3 * 64 * 1024
    for queue_id in range(3):
        queues = [store.queue("T", queue_id) for store in (one, other)]
        assert queues[0].entries(0, 10_000) == queues[1].entries(0, 10_000)
    for start in range(0, one.max_offset, 64 * 1024):
        assert one.read(start, 64 * 1024) == other.read(start, 64 * 1024)
    one.close()
    other.close()


@pytest.mark.parametrize(
    "broken",
    [
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: body + b"\0" * 30,
        lambda body: b"\xff" + body[1:],
        lambda body: body[:16] + b"\xff\xff\xff\xff" + body[20:],  # the body's length
        lambda body: body[:16] + b"\x00\x7f\xff\xff" + body[20:],
        lambda body: body[:23] + b"\xff\xff" + body[25:],  # the properties' length
    ],
)
def test_malformed_batch_adds_nothing(tmp_path: Path, broken) -> None:  # type: ignore[no-untyped-def]  # a lambda's type says nothing
    store = opened(tmp_path)
    queue = store.queue("T", 0)
    body = batch.join([(0, b"abc", b"TAGS\x01a\x02"), (0, b"def", b"")])
    for _ in range(2):
        with pytest.raises(ProtocolError, match="has lengths that do not fit"):
            store.append_batch_body(queue, broken(body), sys_flag=0, born_ms=1, born_host=BORN, store_ms=7)
        assert (queue.next_offset, store.appended_offset, store.write_out()) == (0, 0, None)
    store.close()


def test_key_index_handles_groups_of_many_runs(tmp_path: Path) -> None:
    settings = StoreSettings(store_path_root_dir=str(tmp_path), max_hash_slot_num=10_000, max_index_num=100_000)
    store = MessageStore(settings, store_host=HOST, now_ms=lambda: 7)
    store.open()
    body = batch.join([(0, b"x", b"UNIQ_KEY\x01%08d\x02" % number) for number in range(1_000)])
    for _ in range(3):
        for _ in range(10):
            store.append_batch_body(store.queue("T", 0), body, sys_flag=0, born_ms=1, born_host=BORN, store_ms=7)
        group = store.write_out()
        assert group is not None
        store.confirm(group.end_offset)
        assert store.index_backlog < 1_024
    store.close()
