"""Damaged ranges and the tail of the commit log: finding the next valid record, detecting torn ones, truncating.

A log that is replaced as a whole is moved to a directory beside it, of which the newest few are kept.

Truncation deletes no data unseen. Bytes behind the end of the log that are not zero are copied to a separate file before they are
zeroed. Segments of zeros only were preallocated and never used; they are deleted.
"""

from __future__ import annotations

import os
from contextlib import closing
from itertools import pairwise

import numpy as np

from firearrow.store.commitlog.log import CommitLog
from firearrow.store.commitlog.scan import ScanResult, scan
from firearrow.store.commitlog.segment import Segment, segment_name
from firearrow.store.filesystem import WINDOW, ZEROS, Disk, File, last_nonzero
from firearrow.wire.record import BLANK_BYTES, BLANK_MAGIC_BYTES, FIXED_BYTES_V1, MAGIC_BLANK, RECORD_MAGIC_BYTES, SIZE_AND_MAGIC

SECTOR = 512
DISCARDED = ".discarded-"
KEPT_DISCARDED = 2
_MAGICS = (*RECORD_MAGIC_BYTES, BLANK_MAGIC_BYTES)
_COMMON = _MAGICS[0][:3]  # shared by both record versions


def next_record(log: CommitLog, position: int, limit: int, check_crc: bool) -> int | None:
    """Return the first offset in (position, limit) where a valid record or blank begins, or None."""
    last = max(log.segments, default=-1) * log.segment_size
    start = position + 1
    while start < limit and start <= last + log.segment_size:
        segment = log.segment_at(start)
        if segment is None:
            start = _next_base(log, start)
            continue
        found = _find_in_segment(segment, log, start, min(limit, segment.end), check_crc)
        if found is not None:
            return found
        start = segment.end
    return None


def missing_ranges(log: CommitLog) -> list[tuple[int, int]]:
    """Return the ranges between the first and the last segment that have no file."""
    numbers = sorted(log.segments)
    size = log.segment_size
    return [((low + 1) * size, high * size) for low, high in pairwise(numbers) if high > low + 1]


def _next_base(log: CommitLog, position: int) -> int:
    return (position // log.segment_size + 1) * log.segment_size


def _find_in_segment(segment: Segment, log: CommitLog, start: int, end: int, check_crc: bool) -> int | None:
    while start < end:
        hole_end = segment.file.next_data(start - segment.base)
        if hole_end is None:
            return None
        start = max(start, segment.base + hole_end - 4)
        # The magic is at byte 4 of a record. Windows overlap so that each magic is complete in one of them.
        data = segment.read(min(WINDOW, segment.end - start), start)
        if len(data) <= BLANK_BYTES:
            return None
        for at in _candidates(data):
            if start + at < end and _is_valid(segment, log, start + at, check_crc):
                return start + at
        start += max(1, len(data) - BLANK_BYTES + 1)
    return None


def _candidates(data: bytes) -> list[int]:
    found = []
    for pattern in (_COMMON, BLANK_MAGIC_BYTES):
        at = data.find(pattern, 4)
        while at >= 0:
            if data[at : at + 4] in _MAGICS:
                found.append(at - 4)
            at = data.find(pattern, at + 1)
    return sorted(found)


def _is_valid(segment: Segment, log: CommitLog, position: int, check_crc: bool) -> bool:
    size, magic = SIZE_AND_MAGIC.unpack(segment.read(BLANK_BYTES, position))
    if magic == MAGIC_BLANK:
        return bool(size == segment.end - position)
    if not FIXED_BYTES_V1 <= size <= segment.end - position - BLANK_BYTES:
        return False
    return len(scan(log.read(position, size), position, check_crc=check_crc)) == 1


def first_torn(data: bytes, base: int, result: ScanResult, durable: int) -> int | None:
    """Return the position in `data` of the first record above `durable` that has lost a sector of its topic or properties.

    BODYCRC does not cover these. A sector that never reached the disk is all zeros, whereas topics and properties are text. (A
    lost sector of the head or the body shows in the lengths or the checksum.)
    """
    topic_lengths = np.array([len(topic.encode()) for topic in result.topics], np.int64)
    topic_end = result.property_start - 2
    end = result.property_start + result.property_length
    sector = topic_end - topic_lengths[result.topic_id]
    sector += -(sector + base) % SECTOR  # the first sector that begins at or behind the start of the topic
    codes = np.frombuffer(data, np.uint8)
    torn: list[int] = []
    while True:
        crossed = np.flatnonzero((sector < end) & (end + base > durable))
        if not len(crossed):
            return min(torn, default=None)
        for i in crossed[codes[sector[crossed]] == 0].tolist():
            start = int(sector[i])
            stop = min(start + SECTOR, int(end[i]))
            has_text = start < topic_end[i] or stop > result.property_start[i]  # more than PROPLEN
            if has_text and not any(data[start:stop]):
                torn.append(int(result.offset[i]) - base)
        sector += SECTOR


def truncate_log(log: CommitLog, end: int, directory: str, now_ms: int) -> tuple[int, str | None]:
    """Zero the log behind `end`. Return the number of bytes saved to `directory` and the path of the first file there."""
    disk = log.disk
    saved = 0
    first_path = None
    for number in sorted(log.segments):
        segment = log.segments[number]
        if segment.end <= end:
            continue
        position = max(end, segment.base)
        last = last_nonzero(segment.file, position - segment.base, segment.size)
        if last is not None:
            disk.mkdirs(directory)
            path = os.path.join(directory, f"{segment_name(position)}.{now_ms}")
            saved += last + 1 - (position - segment.base)
            first_path = first_path or path
            _save_copy(disk, segment.file, position - segment.base, last + 1, path)
            disk.fsync_dir(directory)
        if segment.base > end:
            log.segments.pop(number).delete()
        elif last is not None:
            _zero(segment.file, position - segment.base, last + 1)
    if first_path is not None:
        disk.fsync_dir(directory)
        disk.fsync_dir(os.path.dirname(directory))
    disk.fsync_dir(log.directory)
    return saved, first_path


def move_segments_aside(log: CommitLog, now_ms: int) -> str | None:
    """Move all segments to `<commit log>.discarded-<time>`, the newest first. Return that directory, None if the log is empty.

    Durable on return. Older directories of this kind are deleted, except the newest.
    """
    disk = log.disk
    parent, name = os.path.split(log.directory)
    if log.written_offset == log.min_offset:
        log.delete_segments()
        return None
    prefix = f"{name}{DISCARDED}"
    earlier = [one for one in disk.listdir(parent) if one.startswith(prefix)]
    while f"{prefix}{now_ms}" in earlier:
        now_ms += 1
    target = os.path.join(parent, f"{prefix}{now_ms}")
    for old in earlier[: max(len(earlier) + 1 - KEPT_DISCARDED, 0)]:
        disk.rmtree(os.path.join(parent, old))
    disk.mkdirs(target)
    for number in sorted(log.segments, reverse=True):
        segment = log.segments[number]
        segment.close()
        disk.rename(segment.path, os.path.join(target, segment_name(segment.base)))
        del log.segments[number]
    disk.fsync_dir(target)
    log.delete_segments()
    return target


def _save_copy(disk: Disk, file: File, start: int, end: int, path: str) -> None:
    with closing(disk.open(path, create=True)) as copy:
        position = start
        while position < end:
            data = file.pread(min(WINDOW, end - position), position)
            copy.pwrite(data, position - start)
            position += len(data)
        copy.fdatasync()


def _zero(file: File, start: int, end: int) -> None:
    for position in range(start, end, WINDOW):
        file.pwrite(ZEROS[: end - position], position)
    file.fdatasync()
