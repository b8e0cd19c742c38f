"""Directories of Apache RocketMQ 5.5.0: their messages are served, before and after writing to them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from firearrow.store.commitlog.reader import GetStatus
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties, record
from firearrow.wire.message_ids import host_text, offset_msg_id
from tests.store.archives import STORE_HOST, manifest, open_store, settings_of, unpack

CASES = ["a-clean", "b-crash", "c1-torn-tail", "c2-bit-flip", "c3-lost-derived", "d-retention"]


def drain(store: MessageStore, queue: ConsumeQueue) -> list[record.Record]:
    """Return every message of a queue, by pulling it completely."""
    records: list[record.Record] = []
    offset = queue.min_offset
    while offset < queue.max_offset:
        result = store.get_messages(queue, offset, 32)
        assert result.status is GetStatus.FOUND
        pulled = record.decode_all(result.body)
        assert len(pulled) == result.count == result.next_begin_offset - offset
        assert [r.queue_offset for r in pulled] == list(range(offset, result.next_begin_offset))
        records += pulled
        offset = result.next_begin_offset
    assert store.get_messages(queue, offset, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
    return records


def same(found: record.Record, expected: dict[str, Any], store: MessageStore) -> None:
    fields = {
        "topic": found.topic,
        "queueId": found.queue_id,
        "queueOffset": found.queue_offset,
        "commitLogOffset": found.physical_offset,
        "size": found.total_size,
        "version": found.version,
        "sysFlag": found.sys_flag,
        "flag": found.flag,
        "bornTimestamp": found.born_timestamp,
        "bornHost": host_text(found.born_host),
        "storeTimestamp": found.store_timestamp,
        "storeHost": host_text(found.store_host),
        "msgId": offset_msg_id(found.store_host, found.physical_offset),
        "reconsumeTimes": found.reconsume_times,
        "preparedTransactionOffset": found.prepared_transaction_offset,
        "properties": properties.parse(found.properties),
        "bodyCRC": found.body_crc,
        "bodyLength": len(found.body),
        "bodySha256": hashlib.sha256(found.body).hexdigest(),
        "tagsCode": tags_code(store, found),
    }
    if expected.get("tagsCode") is None:  # its queue file was removed from the archive
        del fields["tagsCode"]
    assert fields == {name: expected[name] for name in fields}


def tags_code(store: MessageStore, found: record.Record) -> int:
    queue = store.find_queue(found.topic, found.queue_id)
    assert queue is not None
    entry = queue.entry(found.queue_offset)
    assert entry is not None
    assert entry[:2] == (found.physical_offset, found.total_size)
    return entry[2]


def check(store: MessageStore, case: dict[str, Any], extra: dict[tuple[str, int], int] | None = None) -> None:
    """Check the range of every queue and every record; `extra` own messages follow in some queues."""
    extra = extra or {}
    ends: dict[tuple[str, int], int] = {}  # by the messages: the queue files of a crashed store may know more or less
    for message in case["messages"]:
        ends[message["topic"], message["queueId"]] = message["queueOffset"] + 1
    ranges = {
        (topic, int(queue_id)): (
            queue["minOffset"],
            ends.get((topic, int(queue_id)), queue["maxOffset"]) + extra.get((topic, int(queue_id)), 0),
        )
        for topic, queues in case["consumeQueues"].items()
        for queue_id, queue in queues.items()
    }
    for key in ends.keys() - ranges.keys():
        ranges[key] = (0, ends[key])
    assert {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in store.queues() if q.max_offset} == ranges
    expected = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in case["messages"]}
    served = 0
    for queue in store.queues():
        for found in drain(store, queue):
            if (found.topic, found.queue_id, found.queue_offset) in expected:
                same(found, expected[found.topic, found.queue_id, found.queue_offset], store)
                served += 1
    assert served == len(case["messages"])


def check_keys(store: MessageStore, case: dict[str, Any]) -> None:
    """Check that every message is found by its unique key and its keys."""
    ours: dict[tuple[str, str], set[int]] = {}
    for message in case["messages"]:
        names = [message["uniqKey"] or "", *(message["keys"] or "").split(" ")]
        for name in filter(None, names):
            ours.setdefault((message["topic"], name), set()).add(message["commitLogOffset"])
    for (topic, key), offsets in ours.items():
        result = store.query(topic, key, 1_000_000, 0, 1 << 62)
        found = {record.decode(data).physical_offset for data in result.records}
        wanted = offsets if len(offsets) < store.settings.max_msgs_num_batch else found & offsets
        assert wanted <= found, f"{topic} {key}"
        assert len(wanted) >= min(len(offsets), store.settings.max_msgs_num_batch)


def send(store: MessageStore, topic: str, queue_id: int, body: bytes) -> int:
    queue = store.queue(topic, queue_id)
    offset = queue.next_offset
    store.append(
        queue, body, b"UNIQ_KEY\x01ours-%d\x02" % offset, 0,
        flag=0, sys_flag=0, born_ms=1, born_host=STORE_HOST, store_ms=1794790000000,
    )  # fmt: skip
    store.write_out()
    store.confirm(store.flush())
    return offset


@pytest.mark.parametrize("case", CASES)
def test_apache_messages_are_served_before_and_after_writing_and_reopening(case: str, tmp_path: Path) -> None:
    expected = manifest(case)
    root = unpack(case, tmp_path)
    store = open_store(expected, root)
    assert store.max_offset == store.confirm_offset == expected["commitLog"]["endOffset"]
    assert store.min_offset == expected["commitLog"]["minOffset"]
    check(store, expected)
    check_keys(store, expected)

    assert send(store, "FxA", 0, b"first of ours") == expected["consumeQueues"]["FxA"]["0"]["maxOffset"]
    assert send(store, "Ours", 0, b"a new queue") == 0
    store.close()

    extra = {("FxA", 0): 1}
    expected["consumeQueues"]["Ours"] = {"0": {"minOffset": 0, "maxOffset": 1}}
    store = open_store(expected, root)
    check(store, expected, extra)
    check_keys(store, expected)
    assert record.decode(store.query("Ours", "ours-0", 32, 0, 1 << 62).records[0]).body == b"a new queue"
    store.close()
    assert not (root / "abort").exists()


@pytest.mark.parametrize("case", ["a-clean", "d-retention"])
def test_clean_apache_directory_has_no_problems(case: str, tmp_path: Path) -> None:
    expected = manifest(case)
    root = unpack(case, tmp_path)
    store = MessageStore(settings_of(expected, root), store_host=STORE_HOST, now_ms=lambda: 1)
    report = store.open()
    assert report.clean
    assert report.problems == []
    store.close()


@pytest.mark.parametrize(("case", "cut"), [("c1-torn-tail", True), ("c2-bit-flip", True), ("b-crash", False)])
def test_torn_record_is_saved_before_it_is_zeroed(case: str, cut: bool, tmp_path: Path) -> None:
    expected = manifest(case)
    root = unpack(case, tmp_path)
    end = expected["commitLog"]["endOffset"]
    segment = root / "commitlog" / f"{end // 1048576 * 1048576:020d}"
    before = segment.read_bytes()[end % 1048576 :].rstrip(b"\0")
    store = open_store(expected, root)
    store.close()
    assert not any(segment.read_bytes()[end % 1048576 :])
    saved = [path.read_bytes() for path in (root / "commitlog_cut").glob("*")]
    assert saved == ([before] if cut else [])
    assert not (root / "commitlog" / "00000000000002097152").exists()  # prepared by Apache, all zeros


def test_missing_queue_and_index_files_are_rebuilt(tmp_path: Path) -> None:
    import shutil

    expected = manifest("b-crash")
    root = unpack("b-crash", tmp_path)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    store = open_store(expected, root)
    check(store, expected)
    check_keys(store, expected)
    store.close()
    sizes = {path.stat().st_size for path in (root / "consumequeue").rglob("0*")}
    assert sizes - {4096} == {20000}  # directories aside, every file has its full length
