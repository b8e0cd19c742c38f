"""Key index: Apache's format, independence of the grouping into runs, crashes and full disks."""

from __future__ import annotations

import errno
import itertools
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.store.commitlog.scan import Stop, scan
from firearrow.store.filesystem import Bytes, RealDisk, RealFile
from firearrow.store.key_index.file import ENTRY_SIZE, HEADER_SIZE
from firearrow.store.key_index.index import KeyIndex
from firearrow.wire.java_hash import hash_code
from tests.store.archives import unpack
from tests.store.index_model import Message, ModelIndex, entry_texts
from tests.store.simdisk import SimulatedDisk
from tests.store.with_and_without_c import with_and_without_c

__all__ = ["with_and_without_c"]  # for all tests here

NOW_MS = 1_794_785_474_933
FOREVER = 1 << 62

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12)
values = st.one_of(st.sampled_from(["a", "b", "a b", "", " a  b ", "key-1"]), texts)
properties = st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "KEYS2", ""]), values).map("\x01".join)
blocks = st.lists(properties, max_size=4).map(lambda parts: "\x02".join(parts).encode())
ended_blocks = st.one_of(blocks, blocks.map(lambda block: block + b"\x02"))
steps = st.tuples(
    st.integers(1, 500), st.sampled_from([0, 1, 400, 1_000, 5_500]), st.sampled_from(["T", "Orders", "主题"]), ended_blocks
)


def tell(parts: list[tuple[int, int, str, bytes]]) -> list[Message]:
    messages, offset, time_ms = [], -1, NOW_MS
    for gap, passed_ms, topic, block in parts:
        offset, time_ms = offset + gap, time_ms + passed_ms
        messages.append(Message(offset, time_ms, topic, block))
    return messages


def message_lists() -> st.SearchStrategy[list[Message]]:
    return st.lists(steps, min_size=1, max_size=40).map(tell)


def keyed(count: int, *, start: int = 0, topic: str = "T", step_ms: int = 1) -> list[Message]:
    return [
        Message(100 * i, NOW_MS + step_ms * i, topic, b"UNIQ_KEY\x01U%d\x02KEYS\x01k%d\x02TAGS\x01tag\x02" % (i, i))
        for i in range(start, start + count)
    ]


def new_index(path: Path, slots: int = 500, entries: int = 2000, disk: RealDisk | None = None) -> KeyIndex:
    index = KeyIndex(disk or RealDisk(), str(path), slot_count=slots, entry_limit=entries)
    index.open(clean=True)
    return index


def add(index: KeyIndex, messages: Sequence[Message]) -> None:
    index.add_run([(m.offset, m.store_ms, m.topic, m.properties) for m in messages], NOW_MS)


def contents(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(path.iterdir())]


def model_of(messages: Sequence[Message], slots: int = 500, entries: int = 2000) -> ModelIndex:
    model = ModelIndex(slots, entries)
    for message in messages:
        model.add(message)
    return model


# -- the files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "file_count"), [("a-clean", 5), ("b-crash", 2)])
@pytest.mark.parametrize("chunk", [1 << 20, 4_096])
def test_index_of_an_apache_log_equals_the_apache_index(tmp_path: Path, case: str, file_count: int, chunk: int) -> None:
    unpack(case, tmp_path)
    index = new_index(tmp_path / "ours")
    for segment in sorted((tmp_path / "store" / "commitlog").iterdir()):
        data, position = segment.read_bytes(), 0
        while True:
            found = scan(data[position : position + chunk], int(segment.name) + position, check_crc=True)
            if not len(found) and found.stop is Stop.END:
                found = scan(data[position : position + found.needed], int(segment.name) + position, check_crc=True)
            index.add_scan(found, NOW_MS)
            position += found.end
            if found.stop is not Stop.END:
                break
    index.close()
    assert len(contents(tmp_path / "ours")) == file_count
    assert contents(tmp_path / "ours") == contents(tmp_path / "store" / "index")


@settings(max_examples=60, deadline=None)
@given(messages=message_lists(), data=st.data())
def test_files_do_not_depend_on_the_split_into_runs(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], data: st.DataObject
) -> None:
    slots, entries = data.draw(st.sampled_from([(1, 2), (3, 5), (7, 20), (64, 1000)]))
    path = tmp_path_factory.mktemp("index")
    add_in_runs(path, slots, entries, messages, data)
    assert contents(path) == [file.encode() for file in model_of(messages, slots, entries).files]


def add_in_runs(path: Path, slots: int, entries: int, messages: list[Message], data: st.DataObject) -> None:
    index = new_index(path, slots, entries)
    rest = messages
    while rest:
        count = data.draw(st.sampled_from([1, 2, 7, 20, len(rest)]))
        overlap = data.draw(st.integers(0, 2))  # what was added already does not count again
        start = max(0, len(messages) - len(rest) - overlap)
        add(index, messages[start : len(messages) - len(rest) + count])
        rest = rest[count:]
        if data.draw(st.booleans()):
            index.flush()
    index.close()


def test_long_run_equals_the_model(tmp_path: Path) -> None:
    messages = keyed(3_000)
    index = new_index(tmp_path, 97, 4_001)
    add(index, messages)
    index.close()
    assert contents(tmp_path) == [file.encode() for file in model_of(messages, 97, 4_001).files]


def test_run_of_several_shapes_and_topics_equals_the_model(tmp_path: Path) -> None:
    messages = keyed(1_000)
    for i in range(0, 1_000, 2):  # other names before and behind, another topic
        messages[i] = replace(messages[i], topic="HALF", properties=b"A\x01b\x02" + messages[i].properties + b"TRAN\x01t\x02")
    for i, raw in ((333, b""), (334, b"TAGS\x01d\x02"), (700, b"KEYS\x01a b\x02UNIQ_KEY\x01\xc3\xa4\x02"), (999, b"W\x01t\x02")):
        messages[i] = replace(messages[i], properties=raw)
    index = new_index(tmp_path, 97, 4_001)
    add(index, messages)
    index.close()
    assert contents(tmp_path) == [file.encode() for file in model_of(messages, 97, 4_001).files]


def test_decreasing_store_time_gives_time_diff_zero(tmp_path: Path) -> None:
    messages = [Message(i, NOW_MS - 10_000 * i, "T", b"KEYS\x01k") for i in range(40)]
    index = new_index(tmp_path / "many")
    add(index, messages)
    index.close()
    one_by_one = new_index(tmp_path / "few")
    for message in messages:
        add(one_by_one, [message])
    one_by_one.close()
    expected = [file.encode() for file in model_of(messages).files]
    assert contents(tmp_path / "many") == contents(tmp_path / "few") == expected


def test_file_names_are_local_times_and_ascend_when_the_clock_does_not(tmp_path: Path) -> None:
    index = new_index(tmp_path, entries=4)
    add(index, keyed(4))
    first, *others = [int(name) for name in index.file_names]
    assert len(str(first)) == 17
    assert str(first).endswith("933")
    assert others == [first + 1, first + 2, first + 3]


def test_rolled_back_half_messages_are_not_indexed(tmp_path: Path) -> None:
    def record(position: int, sys_flag: int) -> bytes:
        properties = b"KEYS\x01k\x02"
        size = 92 + len(properties)
        hosts = (bytes(8), NOW_MS, bytes(8))
        head = struct.pack(">iiiiiqqiq8sq8siqi", size, -626843481, 0, 0, 0, 0, position, sys_flag, 0, *hosts, 0, 0, 0)
        return head + b"\x01T" + struct.pack(">h", len(properties)) + properties

    size = len(record(0, 0))
    index = new_index(tmp_path)
    index.add_scan(scan(b"".join(record(i * size, 4 * i) for i in range(4)), 0, check_crc=True), NOW_MS)
    assert index.query("T", "k", 10, 0, FOREVER) == [2 * size, size, 0]  # none, prepared, committed
    assert index.next_offset == 3 * size + 1


def test_file_is_sparse_and_has_its_full_length(tmp_path: Path) -> None:
    index = KeyIndex(RealDisk(), str(tmp_path))
    index.open(clean=True)
    add(index, keyed(3))
    index.close()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 420_000_040
    assert file.stat().st_blocks * 512 < 200_000


# -- queries -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(messages=message_lists(), data=st.data())
def test_query_equals_a_scan_of_all_entries(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], data: st.DataObject
) -> None:
    slots, entries = data.draw(st.sampled_from([(1, 2), (3, 5), (2, 20), (64, 1000)]))
    path = tmp_path_factory.mktemp("index")
    index = new_index(path, slots, entries)
    add(index, messages)
    model = model_of(messages, slots, entries)
    known = [text for message in messages for text in entry_texts(message)] + ["T#nobody"]
    times = st.sampled_from([0, FOREVER] + [m.store_ms + d for m in messages for d in (-1, 0, 1)])
    if data.draw(st.booleans()):
        index.close()
        index = new_index(path, slots, entries)
    for _ in range(5):
        text = data.draw(st.sampled_from(known))
        topic, _, key = text.partition("#")
        kind = "K"
        if key.startswith("T#"):
            kind, key = "T", key[2:]
        begin_ms, end_ms, max_num = data.draw(times), data.draw(times), data.draw(st.integers(1, 70))
        assert index.query(topic, key, max_num, begin_ms, end_ms, kind) == model.query(text, max_num, begin_ms, end_ms)


def test_unique_keys_and_keys_share_a_prefix_and_tags_have_their_own(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    add(index, [Message(7, NOW_MS, "T", "UNIQ_KEY\x01U\x02KEYS\x01键 k2\x02TAGS\x01TagA||TagB\x02".encode())])
    assert [index.query("T", key, 9, 0, FOREVER, kind) for key, kind in [("U", "U"), ("U", "K"), ("键", "K"), ("k2", "K")]] == [
        [7]
    ] * 4
    assert index.query("T", "TagA||TagB", 9, 0, FOREVER, "T") == [7]
    assert index.query("T", "TagA||TagB", 9, 0, FOREVER) == []
    assert index.query("T", "U", 9, 0, FOREVER, "T") == []


def test_message_with_a_repeated_key_is_found_once(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    add(index, [Message(7, NOW_MS, "T", b"UNIQ_KEY\x01k\x02KEYS\x01k k\x02"), Message(9, NOW_MS, "T", b"KEYS\x01k\x02")])
    assert index.query("T", "k", 64, 0, FOREVER) == [9, 7]


def test_old_key_in_a_very_long_chain_is_found(tmp_path: Path) -> None:
    index = new_index(tmp_path, slots=1, entries=400_000)
    add(index, [Message(5, NOW_MS, "T", b"KEYS\x01needle\x02"), Message(6, NOW_MS + 1_000, "T", b"KEYS\x01needle\x02")])
    add(index, [Message(10 + i, NOW_MS + 2_000, "T", b"TAGS\x01hay") for i in range(200_000)])
    assert index.query("T", "needle", 64, 0, FOREVER) == [6, 5]
    assert index.query("T", "needle", 1, 0, FOREVER) == [6]
    assert index.query("T", "needle", 64, 0, NOW_MS + 999) == [5]
    assert index.query("T", "needle", 64, NOW_MS + 1_000, FOREVER) == [6]
    assert index.query("T", "hay", 3, 0, FOREVER, "T") == [200_009, 200_008, 200_007]


def test_key_hash_of_int32_min_is_0(tmp_path: Path) -> None:
    # 7 characters from "!" on, chosen as the digits in base 31 of what the hash of "T#" lacks to -2**31.
    lacking = (-(1 << 31) - hash_code("T#") * 31**7 - sum(33 * 31**n for n in range(7))) % (1 << 32)
    key = "".join(chr(33 + lacking // 31**n % 31) for n in range(6, -1, -1))
    assert hash_code(f"T#{key}") == -(1 << 31)
    marked = Message(0, NOW_MS, "T", b"KEYS\x01" + key.encode())
    for messages in ([marked], [marked, *keyed(30, start=1)]):
        index = new_index(tmp_path / str(len(messages)))
        add(index, messages)
        assert index.query("T", key, 9, 0, FOREVER) == [0]
        index.close()
        (data,) = contents(tmp_path / str(len(messages)))
        assert struct.unpack_from(">iq", data, 40 + 4 * 500 + 20) == (0, 0)


# -- taking back, retention --------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(messages=message_lists(), data=st.data())
def test_truncated_messages_can_be_added_again(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], data: st.DataObject
) -> None:
    slots, entries = data.draw(st.sampled_from([(1, 2), (3, 5), (7, 20), (64, 1000)]))
    path = tmp_path_factory.mktemp("index")
    index = new_index(path, slots, entries)
    add(index, messages)
    for _ in range(2):
        cut = data.draw(st.sampled_from([0, *[m.offset + d for m in messages for d in (0, 1)]]))
        if data.draw(st.booleans()):
            index.flush()
        index.truncate_to(cut)
        kept = [m for m in messages if m.offset < cut]
        model = model_of(kept, slots, entries)
        assert [index.query("T", "a", 99, 0, FOREVER)] == [model.query("T#a", 99, 0, FOREVER)]
        assert index.next_offset <= cut
        add(index, messages)
    index.close()
    assert contents(path) == [file.encode() for file in model_of(messages, slots, entries).files]


def test_delete_before_keeps_the_newest_file(tmp_path: Path) -> None:
    index = new_index(tmp_path, entries=31)  # 10 messages a file
    add(index, keyed(25))
    names = index.file_names
    assert index.delete_before(900) == []  # the first file still leads to the message at 900
    assert index.delete_before(901) == names[:1]
    assert index.query("T", "k3", 9, 0, FOREVER) == []
    assert index.query("T", "k10", 9, 0, FOREVER) == [1_000]
    assert index.delete_before(1 << 60) == names[1:2]
    assert sorted(file.name for file in tmp_path.iterdir()) == names[2:]
    add(index, keyed(30))
    assert index.query("T", "k29", 9, 0, FOREVER) == [2_900]


# -- crashes -----------------------------------------------------------------------------------------------------------


def reopen_after_crash(path: Path, slots: int = 500, entries: int = 2000, trusted_ms: int = 0) -> tuple[KeyIndex, list[str]]:
    index = KeyIndex(RealDisk(), str(path), slot_count=slots, entry_limit=entries)
    return index, index.open(clean=False, trusted_ms=trusted_ms)


@settings(max_examples=60, deadline=None)
@given(messages=message_lists(), data=st.data())
def test_index_is_completed_from_next_offset_after_a_kill(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], data: st.DataObject
) -> None:
    slots, entries = data.draw(st.sampled_from([(1, 2), (3, 5), (7, 20), (64, 1000)]))
    path = tmp_path_factory.mktemp("index")
    index = new_index(path, slots, entries)
    flushed = data.draw(st.integers(0, len(messages)))
    add(index, messages[:flushed])
    index.flush()
    safe = index.next_offset
    add(index, messages[flushed:])
    # killed here: entries are all there, headers and slots only as of the flush
    after, lost = reopen_after_crash(path, slots, entries, trusted_ms=index.full_ms)
    assert all("follow" in line or "dropped with" in line for line in lost)
    keyed_before = [m.offset for m in messages[:flushed] if entry_texts(m)]
    assert after.next_offset <= safe
    assert after.next_offset >= (keyed_before[-1] if keyed_before else 0)
    add(after, [m for m in messages if m.offset >= after.next_offset])
    after.close()
    assert contents(path) == [file.encode() for file in model_of(messages, slots, entries).files]


@settings(max_examples=60, deadline=None)
@given(victim=st.integers(0, 2), first=st.integers(1, 49), count=st.sampled_from([1, 2, 10]))
def test_lost_entries_are_dropped_with_all_that_follow(
    tmp_path_factory: pytest.TempPathFactory, victim: int, first: int, count: int
) -> None:
    messages = keyed(40, start=1)
    path = tmp_path_factory.mktemp("index")
    index = new_index(path, 16, 50)
    add(index, messages)
    index.close()
    expected = contents(path)
    image = bytearray(expected[victim])
    first = min(first, struct.unpack_from(">i", image, 36)[0] - 1)
    begin, end = 40 + 64 + 20 * first, 40 + 64 + 20 * min(first + count, 50)
    image[begin:end] = bytes(end - begin)
    sorted(path.iterdir())[victim].write_bytes(image)
    after, lost = reopen_after_crash(path, 16, 50)
    assert f"entry {first} of" in lost[0]
    assert after.next_offset <= struct.unpack_from(">q", expected[victim], begin + 4)[0]
    add(after, messages)
    after.close()
    assert contents(path) == expected


@settings(max_examples=80, deadline=None)
@given(messages=message_lists(), data=st.data())
def test_index_survives_power_cuts_and_truncations(messages: list[Message], data: st.DataObject) -> None:
    slots, entries = data.draw(st.sampled_from([(1, 2), (3, 5), (7, 20), (200, 40)]))
    rng = data.draw(st.randoms(use_true_random=False))
    disk = SimulatedDisk()
    index = KeyIndex(disk, "/index", slot_count=slots, entry_limit=entries)
    index.open(clean=True)
    log: list[Message] = []
    trusted_ms = 0
    for step in data.draw(st.lists(st.sampled_from(["add", "add", "flush", "truncate", "cut", "kill", "stop"]), max_size=25)):
        if step == "add":
            more: list[Message] = []
            for message in rng.choices(messages, k=rng.randint(1, 6)):
                # Whole seconds, which a truncation can tell from the entries that are left.
                before = (log + more)[-1] if log or more else replace(message, offset=-100, store_ms=NOW_MS)
                later_ms = before.store_ms + rng.choice((0, 1_000, 7_000))
                more.append(replace(message, offset=before.offset + 100, store_ms=later_ms))
            log += more
            add(index, more)
        elif step == "flush":
            index.flush()
            trusted_ms = index.full_ms
        elif step == "truncate" and log:
            log = log[: rng.randrange(len(log))]
            index.truncate_to(log[-1].offset + 1 if log else 0)
        elif step in ("cut", "kill", "stop"):
            if step == "stop":
                index.close()
            disk = disk.power_cut(rng) if step == "cut" else disk.copy()
            index = KeyIndex(disk, "/index", slot_count=slots, entry_limit=entries)
            index.open(clean=step == "stop", trusted_ms=trusted_ms)
            add(index, log)
    index.close()
    images = [counted(disk.read_bytes(f"/index/{name}"), slots) for name in disk.listdir("/index")]
    assert images == [counted(file.encode(), slots) for file in model_of(log, slots, entries).files]


def counted(image: bytes, slots: int) -> bytes:
    """Return the file up to the last counted entry: removed entries stay in the file."""
    return image[: 40 + 4 * slots + 20 * struct.unpack_from(">i", image, 36)[0]]


def test_slots_are_rebuilt_from_entries(tmp_path: Path) -> None:
    messages = keyed(500)
    index = new_index(tmp_path)
    add(index, messages)
    index.close()
    expected = contents(tmp_path)
    (file,) = tmp_path.iterdir()
    image = bytearray(file.read_bytes())
    image[40 : 40 + 2000] = b"\x00\x00\x01\x00" * 500  # every slot leads to entry 256
    file.write_bytes(image)
    after, lost = reopen_after_crash(tmp_path)
    assert lost == []
    assert after.next_offset == messages[-1].offset
    assert after.query("T", "k400", 9, 0, FOREVER) == [40_000]
    add(after, messages)
    after.close()
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("clean", [True, False])
def test_file_of_the_wrong_size_is_dropped_with_all_that_follow(tmp_path: Path, clean: bool) -> None:
    messages = keyed(40)
    index = new_index(tmp_path, 16, 50)
    add(index, messages)
    index.close()
    expected, names = contents(tmp_path), index.file_names
    (tmp_path / names[1]).write_bytes(b"short")
    after = KeyIndex(RealDisk(), str(tmp_path), slot_count=16, entry_limit=50)
    lost = after.open(clean=clean)
    assert [name in line for name, line in zip(names[1:], lost, strict=True)] == [True, True]
    assert after.next_offset <= messages[16].offset + 1
    add(after, messages)
    after.close()
    assert contents(tmp_path) == expected


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "123").write_text("mine too")
    index = new_index(tmp_path)
    add(index, keyed(1))
    index.close()
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "123").exists()


def test_flush_completes_full_files_and_releases_their_slots(tmp_path: Path) -> None:
    index = new_index(tmp_path, 16, 31)
    add(index, keyed(25))
    assert index.full_ms == 0
    index.flush()
    assert index.full_ms == NOW_MS + 19
    assert [file.slots is None for file in index.files] == [True, True, False]
    assert index.query("T", "k3", 9, 0, FOREVER) == [300]


# -- disks that fail ---------------------------------------------------------------------------------------------------


class FullDisk(RealDisk):
    """Accepts `room` more writes and then fails with ENOSPC."""

    room = 1 << 30

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> RealFile:
        if create:
            self.take()
        return LimitedFile(super().open(path, create=create, size=size), self)

    def take(self) -> None:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= 1


class LimitedFile(RealFile):
    def __init__(self, file: RealFile, disk: FullDisk) -> None:
        super().__init__(file.descriptor, file.path)
        self.disk = disk

    def pwrite(self, data: Bytes, offset: int) -> None:
        self.disk.take()
        super().pwrite(data, offset)


@settings(max_examples=60, deadline=None)
@given(messages=message_lists(), data=st.data())
def test_run_can_be_added_again_after_a_full_disk(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message], data: st.DataObject
) -> None:
    slots, entries = data.draw(st.sampled_from([(1, 2), (3, 5), (7, 20)]))
    disk, path = FullDisk(), tmp_path_factory.mktemp("index")
    index = new_index(path, slots, entries, disk)
    for _ in range(6):
        disk.room = data.draw(st.integers(0, 12))
        with suppress(OSError):
            add(index, messages)
            if data.draw(st.booleans()):
                index.flush()
    disk.room = 1 << 30
    add(index, messages)
    index.close()
    assert contents(path) == [file.encode() for file in model_of(messages, slots, entries).files]


def test_adds_and_queries_continue_during_a_flush(tmp_path: Path) -> None:
    index = new_index(tmp_path, 64, 301)
    stop = threading.Event()
    failures: list[BaseException] = []

    def flush_all_the_time() -> None:
        try:
            while not stop.is_set():
                index.flush()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=flush_all_the_time)
    thread.start()
    messages = keyed(2_000)
    for first in range(0, len(messages), 40):
        add(index, messages[first : first + 40])
        assert index.query("T", f"k{first}", 9, 0, FOREVER) == [100 * first]
        assert index.query("T", "k0", 9, 0, FOREVER) == [0]
    stop.set()
    thread.join()
    assert failures == []
    index.close()
    assert contents(tmp_path) == [file.encode() for file in model_of(messages, 64, 301).files]


def test_invalid_limits_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="maxIndexNum=1"):
        KeyIndex(RealDisk(), str(tmp_path), entry_limit=1)


def test_write_behind_covers_large_ranges(tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []
    index = new_index(tmp_path, 97, 100_000)
    with mock.patch.object(RealFile, "write_behind", lambda self, offset, size: asked.append((offset, size))):
        for start in range(0, 30_000, 1_000):
            add(index, keyed(1_000, start=start))
            if index.should_write_behind:
                index.write_behind()
        index.write_behind()  # too little since
    assert [size for _, size in asked] == [5_000 * 3 * 20] * 6
    assert asked[0][0] == HEADER_SIZE + 4 * 97 + ENTRY_SIZE
    assert all(before + size == after for (before, size), (after, _) in itertools.pairwise(asked))
    index.close()
