"""Consume queues: entries in memory and files, the first file, deletion of files at either end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.store.consume_queue import ABSENT_SIZE, ENTRY, UNIT, ConsumeQueue, QueueFiles
from tests.store.simdisk import SimulatedDisk

ROOT = "/q"
PER_FILE = 10


def queue_at(start: int) -> tuple[ConsumeQueue, QueueFiles, SimulatedDisk]:
    disk = SimulatedDisk()
    files = QueueFiles(disk, ROOT, PER_FILE * UNIT, open_limit=2)
    queue = ConsumeQueue("Orders", 3, files)
    queue.reset(start)
    return queue, files, disk


def entry(number: int) -> bytes:
    return ENTRY.pack(1000 + 100 * number, 100, -number)


def add(queue: ConsumeQueue, count: int) -> None:
    for _ in range(count):
        queue.tail += entry(queue.next_offset)
        queue.next_offset += 1


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 35),
    st.lists(st.tuples(st.sampled_from(["add", "show", "flush"]), st.integers(1, 140)), max_size=12),
    st.data(),
)
def test_entries_read_back_after_any_sequence_of_appends_and_flushes(
    start: int, events: list[tuple[str, int]], data: st.DataObject
) -> None:
    queue, files, disk = queue_at(start)
    for event, number in events:
        if event == "add":
            add(queue, number)
        elif event == "show":
            queue.max_offset = min(queue.next_offset, queue.max_offset + number)
        else:
            files.flush(queue)
        assert queue.tail_start <= queue.written <= queue.max_offset <= queue.next_offset
        assert len(queue.tail) == (queue.next_offset - queue.tail_start) * UNIT
    offset = data.draw(st.integers(start, max(start, queue.max_offset)))
    count = data.draw(st.integers(0, 300))
    end = min(offset + count, queue.max_offset)
    assert queue.entries(offset, count) == b"".join(entry(n) for n in range(offset, end))
    assert queue.entries(queue.max_offset, 5) == b""
    for path in disk.files(ROOT):
        assert disk.file_size(path) == PER_FILE * UNIT


@settings(deadline=None)
@given(st.integers(1, 35))
def test_first_file_is_filled_with_absent_entries(start: int) -> None:
    queue, files, disk = queue_at(start)
    add(queue, 1)
    queue.max_offset += 1
    files.flush(queue)
    base = start - start % PER_FILE
    assert disk.files(ROOT) == [f"{ROOT}/Orders/3/{base * UNIT:020d}"]
    data = disk.read_bytes(disk.files(ROOT)[0])
    absent = ENTRY.pack(0, ABSENT_SIZE, 0)
    assert data == (absent * (start - base) + entry(start)).ljust(PER_FILE * UNIT, b"\0")
    queue.correct_min(0)
    assert queue.min_offset == start  # although the units before it point to log offset 0


@settings(deadline=None)
@given(st.integers(0, 25), st.integers(1, 60), st.integers(0, 120))
def test_min_offset_is_the_first_entry_with_an_existing_record(start: int, count: int, gone: int) -> None:
    queue, files, disk = queue_at(start)
    add(queue, count)
    queue.max_offset = queue.next_offset
    files.flush(queue)
    log_min = 1000 + 100 * gone - 50  # records up to `gone` - 1 are gone
    queue.correct_min(log_min)
    assert queue.min_offset == min(max(start, gone), start + count)
    paths = files.remove_below(queue, queue.min_offset)
    for path in paths:
        disk.unlink(path)
    left = disk.files(ROOT)
    assert left, "the newest file always stays"
    assert queue.entries(queue.min_offset, 100) == b"".join(entry(n) for n in range(queue.min_offset, start + count))
    reloaded = ConsumeQueue("Orders", 3, QueueFiles(disk, ROOT, PER_FILE * UNIT))
    assert reloaded.files.load(reloaded) == []
    assert (reloaded.first_file, reloaded.last_file) == (queue.first_file, queue.last_file)


def test_clear_from_zeroes_the_rest_and_deletes_later_files() -> None:
    queue, files, disk = queue_at(0)
    add(queue, 35)
    queue.max_offset = 35
    files.flush(queue)
    files.clear_from(queue, 17)
    assert [path.rpartition("/")[2] for path in disk.files(ROOT)] == [f"{0:020d}", f"{200:020d}"]
    assert disk.read_bytes(disk.files(ROOT)[1]) == b"".join(entry(n) for n in range(10, 17)).ljust(200, b"\0")


def test_number_of_open_files_is_limited() -> None:
    disk = SimulatedDisk()
    files = QueueFiles(disk, ROOT, PER_FILE * UNIT, open_limit=4)
    queues = [ConsumeQueue("Orders", number, files) for number in range(50)]
    for queue in queues:
        add(queue, 200)
        queue.max_offset = 200
        files.flush(queue)
    assert all(queue.entries(0, 3) == b"".join(map(entry, range(3))) for queue in queues)
    assert disk.open_files == 4
