"""Taking back what was written and never confirmed: the log of a member of an elected group is cut where its leader's differs.

Only confirmed messages are visible, in queue files or in the index, and what is confirmed is never cut off. So there is nothing
to take back but the log's own bytes and the newest entries that queues have in memory.

The commit log where it cannot be read: finding the next good record, and cutting off what lies behind the end.

Nothing is deleted unseen. Bytes behind the end of the log that are not zero are first copied to a file of their own; only then is
their place zeroed. Segments that hold nothing but zeros were prepared and never used.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable

import numpy as np

from firearrow.store.commitlog.log import BLANK, BLANK_SIZE, AppendGroup, CommitLog
from firearrow.store.commitlog.scan import ScanResult, scan
from firearrow.store.commitlog.segment import Segment, segment_name
from firearrow.store.consume_queue import UNIT, ConsumeQueue
from firearrow.store.filesystem import Disk, File
from firearrow.wire.record import FIXED_BYTES_V1, MAGIC_BLANK, MAGIC_V1, MAGIC_V2

_PIECE = 4 * 1024 * 1024


def forget_groups(unconfirmed: deque[AppendGroup], offset: int) -> None:
    """Drops the groups that end above `offset`; their queues go on where the groups before left them."""
    dropped: set[ConsumeQueue] = set()
    while unconfirmed and unconfirmed[-1].end_offset > offset:
        dropped.update(unconfirmed.pop().touched)
    take_back(dropped, unconfirmed)


def take_back(queues: Iterable[ConsumeQueue], unconfirmed: deque[AppendGroup]) -> None:
    """Queues lose the entries that belong to no group."""
    for queue in queues:
        end = queue.max_offset
        for group in reversed(unconfirmed):
            if queue in group.touched:
                end = group.touched[queue]
                break
        del queue.tail[(end - queue.tail_start) * UNIT :]
        queue.next_offset = end


def pieces(log: CommitLog, start: int, end: int) -> Iterable[bytes]:
    """The log's bytes, some at a time."""
    while start < end:
        data = log.read(start, min(_PIECE, end - start))
        assert data, f"the log has no bytes at {start}"
        yield data
        start += len(data)


SECTOR = 512
_WINDOW = 4 * 1024 * 1024
_MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
_COMMON = _MAGICS[0][:3]  # the two kinds of record share three bytes
_ZEROS = bytes(_WINDOW)


def next_record(log: CommitLog, position: int, limit: int, check_crc: bool) -> int | None:
    """The first place behind `position` and below `limit` where a good record or a blank begins; None if there is none."""
    last = max(log.segments, default=-1) * log.segment_size
    start = position + 1
    while start < limit and start <= last + log.segment_size:
        segment = log.segment_at(start)
        if segment is None:
            start = _next_base(log, start)
            continue
        found = _find_in(segment, log, start, min(limit, segment.end), check_crc)
        if found is not None:
            return found
        start = segment.end
    return None


def _next_base(log: CommitLog, position: int) -> int:
    return (position // log.segment_size + 1) * log.segment_size


def _find_in(segment: Segment, log: CommitLog, start: int, end: int, check_crc: bool) -> int | None:
    while start < end:
        hole_end = segment.file.next_data(start - segment.base)
        if hole_end is None:
            return None
        start = max(start, segment.base + hole_end - 4)
        # A magic is 4 bytes into its record: windows overlap so that none is cut apart.
        data = segment.read(min(_WINDOW, segment.end - start), start)
        if len(data) <= BLANK_SIZE:
            return None
        for at in _candidates(data):
            if start + at < end and _is_good(segment, log, start + at, check_crc):
                return start + at
        start += max(1, len(data) - BLANK_SIZE + 1)
    return None


def _candidates(data: bytes) -> list[int]:
    found = []
    for pattern in (_COMMON, _MAGICS[2]):
        at = data.find(pattern, 4)
        while at >= 0:
            if data[at : at + 4] in _MAGICS:
                found.append(at - 4)
            at = data.find(pattern, at + 1)
    return sorted(found)


def _is_good(segment: Segment, log: CommitLog, position: int, check_crc: bool) -> bool:
    size, magic = BLANK.unpack(segment.read(BLANK_SIZE, position))
    if magic == MAGIC_BLANK:
        return bool(size == segment.end - position)
    if not FIXED_BYTES_V1 <= size <= segment.end - position - BLANK_SIZE:
        return False
    return len(scan(log.read(position, size), position, check_crc=check_crc)) == 1


def first_torn(data: bytes, base: int, result: ScanResult, mark: int) -> int | None:
    """Position in `data` of the first record that reaches above `mark` and has lost a sector of its topic or properties.

    Those are not covered by BODYCRC. A sector that never reached the disk is zero from its beginning on; topics and properties
    are text. (In the head or the body a lost sector shows in the lengths or the checksum.)
    """
    topic_lengths = np.array([len(topic.encode()) for topic in result.topics], np.int64)
    topic_end = result.property_start - 2
    end = result.property_start + result.property_length
    sector = topic_end - topic_lengths[result.topic_id]
    sector += -(sector + base) % SECTOR  # the first sector that begins in the topic or behind it
    codes = np.frombuffer(data, np.uint8)
    torn: list[int] = []
    while True:
        crossed = np.flatnonzero((sector < end) & (end + base > mark))
        if not len(crossed):
            return min(torn, default=None)
        for i in crossed[codes[sector[crossed]] == 0].tolist():
            start = int(sector[i])
            stop = min(start + SECTOR, int(end[i]))
            has_text = start < topic_end[i] or stop > result.property_start[i]  # more than the length of the properties
            if has_text and not any(data[start:stop]):
                torn.append(int(result.offset[i]) - base)
        sector += SECTOR


def cut_log(disk: Disk, log: CommitLog, end: int, directory: str, now_ms: int) -> tuple[int, str | None]:
    """Leaves nothing but zeros behind `end`; returns how many bytes were saved, and where the first of them are."""
    saved = 0
    first_path = None
    for number in sorted(log.segments):
        segment = log.segments[number]
        if segment.end <= end:
            continue
        position = max(end, segment.base)
        last = _last_data(segment.file, position - segment.base, segment.size)
        if last is None:
            if segment.base > end:
                _remove(disk, log, number)
            continue
        disk.mkdirs(directory)
        path = os.path.join(directory, f"{segment_name(position)}.{now_ms}")
        saved += last + 1 - (position - segment.base)
        first_path = first_path or path
        if segment.base > end:
            _copy_out(disk, segment.file, 0, last + 1, path)
            disk.fsync_dir(directory)
            _remove(disk, log, number)
        else:
            _copy_out(disk, segment.file, position - segment.base, last + 1, path)
            disk.fsync_dir(directory)
            _zero(segment.file, position - segment.base, last + 1)
    if first_path is not None:
        disk.fsync_dir(directory)
        disk.fsync_dir(os.path.dirname(directory))
    disk.fsync_dir(log.directory)
    return saved, first_path


def _remove(disk: Disk, log: CommitLog, number: int) -> None:
    segment = log.segments.pop(number)
    segment.close()
    disk.unlink(segment.path)


def _last_data(file: File, start: int, size: int) -> int | None:
    """Position of the last byte from `start` on that is not zero; holes are skipped."""
    last = None
    position: int | None = start
    while position is not None and position < size:
        position = file.next_data(position)
        if position is None or position >= size:
            break
        data = file.pread(min(_WINDOW, size - position), position)
        if not data:
            break
        if data != _ZEROS[: len(data)]:
            last = position + len(data.rstrip(b"\0")) - 1
        position += len(data)
    return last


def _copy_out(disk: Disk, file: File, start: int, end: int, path: str) -> None:
    copy = disk.open(path, create=True)
    try:
        position = start
        while position < end:
            data = file.pread(min(_WINDOW, end - position), position)
            copy.pwrite(data, position - start)
            position += len(data)
        copy.fdatasync()
    finally:
        copy.close()


def _zero(file: File, start: int, end: int) -> None:
    position = start
    while position < end:
        length = min(_WINDOW, end - position)
        file.pwrite(_ZEROS[:length], position)
        position += length
    file.fdatasync()
