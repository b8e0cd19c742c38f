"""Reading of a store directory without a broker: commit-log files of Firearrow or Apache, live or copied.

Planning finds the segments (`commitlog/` with files named after the offset of their first byte, 20 digits, all of one length) and
the end of the log:
- the checkpoint of our broker contains the flushed offset; nothing above it was acknowledged;
- without a checkpoint (Apache) the last segment is scanned to the first position without a valid record.
The table is what lies below that end when the query is planned, whatever a broker writes meanwhile.

Several tasks read a segment, each a range of bytes. A task that does not start at the beginning of a segment searches for the
first record in its range: a magic number, a PHYSICALOFFSET equal to its position, and consistent lengths. It reads every record
that starts in its range. Files are read with `pread` in blocks, so that a disk error raises an exception rather than a signal.

Damage below the end is an error that names file and position, or is skipped to the next valid record (`failOnDataLoss`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from firearrow.spark.decode.columns import Columns, record_batch
from firearrow.spark.decode.records import Bools, FoundRecords, Records, find_records
from firearrow.spark.decode.slices import text_slices
from firearrow.spark.errors import SparkOptionError, StoreFileError
from firearrow.spark.options import DataSourceOptions
from firearrow.store.checkpoint import Checkpoint
from firearrow.store.commitlog.scan import Stop, walk
from firearrow.store.commitlog.segment import parse_segment_name, segment_name
from firearrow.wire import record
from firearrow.wire.names import is_system_topic
from firearrow.wire.record import body_crc

_BLOCK: Final = 4 << 20
_LARGE: Final = 64 << 20
_MAX_RECORD: Final = 256 << 20  # a larger size indicates damage


class Split(NamedTuple):
    """Records of one segment that start at log offsets `first` to `end` (exclusive); the log ends at `log_end`."""

    path: str
    base: int
    first: int
    end: int
    log_end: int


def plan_splits(options: DataSourceOptions) -> list[Split]:
    """Plan the tasks of a scan. SparkOptionError or StoreFileError if the directory is not a store."""
    root = options["path"]
    directory, segments = _segments(root)
    size = _segment_size(segments)
    end = _log_end(root, segments, size)
    splits = []
    for base, path in segments:
        _check_first_record(path, base, end)
        stop = min(base + size, end)
        share = _bytes_per_task(stop - base, options["maxSplitBytes"])
        splits += [Split(path, base, first, min(first + share, stop), stop) for first in range(base, stop, share)]
    _check_topics_option(options, directory)
    return splits


def read_splits(splits: Sequence[Split], options: DataSourceOptions, columns: Columns) -> Iterator[Any]:
    wanted = _RecordFilter(options)
    for split in splits:
        for read in _read(split, options["failOnDataLoss"]):
            records = read.filter(wanted(read)) if len(read) else read
            if len(records):
                yield record_batch(records, columns, broker_name=options["brokerName"], decompress=options["decompress"])


def _bytes_per_task(length: int, most: int) -> int:
    """Return the bytes per task. Large segments get a multiple of four tasks, so that 2 or 4 cores finish together."""
    tasks = max(1, -(-length // most))
    if length >= _LARGE:
        tasks += -tasks % 4
    return max(1, -(-length // tasks))


def _segments(root: str) -> tuple[str, list[tuple[int, str]]]:
    if not os.path.isdir(root):
        raise SparkOptionError(f"option path is {root!r}, which is not a directory")
    directory = os.path.join(root, "commitlog")
    if not os.path.isdir(directory):
        directory = root
    found = sorted((base, name) for name in os.listdir(directory) if (base := parse_segment_name(name)) is not None)
    if not found:
        raise SparkOptionError(f"option path is {root!r}, which has no commit log (expected {root}/commitlog/{segment_name(0)})")
    return directory, [(base, os.path.join(directory, name)) for base, name in found]


def _segment_size(segments: list[tuple[int, str]]) -> int:
    sizes = {os.path.getsize(path) for _, path in segments}
    size = max(sizes)
    for base, path in segments:
        found = os.path.getsize(path)
        if found != size:
            raise StoreFileError(f"{path} has {found} bytes, other files of this log have {size}: was the copy cut short?")
        if base % size and base != segments[0][0]:
            raise StoreFileError(f"{path} is not named after a multiple of its size, {size}")
    for (base, path), (following, _) in pairwise(segments):
        if following != base + size:
            raise StoreFileError(f"the file after {path} is missing: expected {segment_name(base + size)}")
    return size


def _log_end(root: str, segments: list[tuple[int, str]], size: int) -> int:
    """Return the physical offset after the last record of the table."""
    base, path = segments[-1]
    try:
        with open(os.path.join(root, "checkpoint"), "rb") as file:
            flushed = Checkpoint.decode(file.read()).flushed_offset
    except OSError:
        flushed = 0
    if segments[0][0] < flushed <= base + size:
        return flushed
    while base > segments[0][0] and _is_empty(path):  # brokers preallocate the next file
        segments = segments[:-1]
        base, path = segments[-1]
    return _scan_end(path, base, size)


def _is_empty(path: str) -> bool:
    with open(path, "rb") as file:
        return not any(file.read(8))


def _scan_end(path: str, base: int, size: int) -> int:
    """Return the end of the records of a segment: follow their sizes, and validate the last block completely."""
    at = base
    with open(path, "rb", buffering=0) as file:
        length = _BLOCK
        while True:
            data = os.pread(file.fileno(), min(length, base + size - at), at - base)
            _, end, stop, needed = walk(data)
            if stop is not Stop.END or at + end + needed > base + size or needed > _MAX_RECORD:
                break
            at += end
            length = max(_BLOCK, needed)
    found = find_records(data, at)
    if len(found.records) and not _has_valid_crc(found.records):
        return at + int(found.records.start[-1])  # torn
    return at + found.end


def _has_valid_crc(records: Records) -> bool:
    body = records.buffer[int(records.body_start[-1]) : int(records.body_end[-1])]
    return body_crc(body) == int(records.field("crc")[-1])


def _check_first_record(path: str, base: int, end: int) -> None:
    """Check that a segment below the end of the log starts with a record."""
    if base >= end:
        return
    with open(path, "rb") as file:
        head = file.read(8)
    if head[4:] not in (*record.RECORD_MAGIC_BYTES, record.BLANK_MAGIC_BYTES):
        raise StoreFileError(f"{path} does not begin with a record (magic {head[4:].hex() or 'missing'}): is it damaged?")


def _check_topics_option(options: DataSourceOptions, directory: str) -> None:
    """Reject topics for which the store has no queue directory, which are probably misspelt."""
    queues = os.path.join(os.path.dirname(directory), "consumequeue")
    if options["subscribe"] is None or not os.path.isdir(queues):
        return
    existing = set(os.listdir(queues))
    for topic in options["subscribe"]:
        if existing and topic not in existing:
            raise SparkOptionError(f"the topic {topic!r} is not in the store {options['path']!r}")


class _RecordFilter:
    """Filter for the records of the table."""

    def __init__(self, options: DataSourceOptions) -> None:
        self._topics = None if options["subscribe"] is None else frozenset(options["subscribe"])
        self._pattern = None if options["subscribePattern"] is None else re.compile(options["subscribePattern"])
        self._system = options["includeSystemTopics"]
        self._transactions = options["includeTransactions"]
        self._from_ms = options["startingTimestamp"]
        self._to_ms = options["endingTimestamp"]

    def __call__(self, records: Records) -> Bools:
        wanted = self._has_wanted_topic(records)
        if not self._transactions:  # brokers put no others into consume queues
            kind = records.field("sys_flag") & record.TRANSACTION_TYPE
            wanted &= (kind == 0) | (kind == record.TRANSACTION_COMMIT)
        stored = records.field("store_ms")
        if self._from_ms is not None:
            wanted &= stored >= self._from_ms
        if self._to_ms is not None:
            wanted &= stored < self._to_ms
        return wanted

    def _has_wanted_topic(self, records: Records) -> Bools:
        common = records.common_topic()
        if common is not None:
            return np.full(len(records), self._is_wanted(common.decode("utf-8", "replace")))
        names = text_slices(records.buffer, records.topic_start, records.topic_end).dictionary_encode()
        good = np.array([self._is_wanted(name) for name in names.dictionary.to_pylist()], np.bool_)
        wanted: Bools = good[names.indices.to_numpy(zero_copy_only=False)]
        return wanted

    def _is_wanted(self, topic: str) -> bool:
        if self._topics is not None:
            return topic in self._topics
        if is_system_topic(topic) and not self._system:
            return False
        return self._pattern is None or self._pattern.fullmatch(topic) is not None


def _read(split: Split, lossless: bool) -> Iterator[Records]:
    """Yield the records of a split; damage raises an error if `lossless`, otherwise it is skipped."""
    while split.first < split.end:
        at = split.first
        for found in _blocks(split):
            yield found.records
            at = found.at
            if found.stop is Stop.BLANK:
                return
            if found.stop is not Stop.END or (found.records_end and at < split.end):
                break
        else:
            return
        if at >= split.end:
            return
        if lossless:
            raise StoreFileError(
                f"{split.path} is damaged at byte {at - split.base} (log offset {at}): {found.stop.value}; "
                "set failOnDataLoss to false to skip to the next record that can be read"
            )
        split = split._replace(first=at + 1)


class _Block(NamedTuple):
    records: Records
    stop: Stop
    at: int  # log offset of the first byte without a valid record
    records_end: bool  # the file ends inside the record there


def _blocks(split: Split) -> Iterator[_Block]:
    """Yield the records of a split, block by block, up to the first position without a valid record."""
    with open(split.path, "rb", buffering=0) as file:
        at = split.first if split.first == split.base else _first_record(file, split)
        size = _BLOCK
        while at < split.end:
            data = os.pread(file.fileno(), min(size, split.log_end - at), at - split.base)
            found: FoundRecords = find_records(data, at, 0, split.end - at)
            at += found.end
            at_end = at + found.needed > split.log_end or found.needed > _MAX_RECORD
            yield _Block(found.records, found.stop, at, found.stop is Stop.END and at_end)
            if found.stop is not Stop.END or at_end:
                return
            size = max(_BLOCK, found.needed)


def _first_record(file: Any, split: Split) -> int:
    """Return the log offset of the first record that starts in a split, or its end."""
    at = split.first
    while at < split.end:
        data = os.pread(file.fileno(), min(_BLOCK + record.HEAD_BYTES, split.log_end - at), at - split.base)
        offset = _resync(data, at, min(_BLOCK, split.end - at), file, split)
        if offset is not None:
            return offset
        at += _BLOCK
    return split.end


def _resync(data: bytes, base: int, limit: int, file: Any, split: Split) -> int | None:
    blank = record.BLANK_MAGIC_BYTES
    best: int | None = None
    for magic in (*record.RECORD_MAGIC_BYTES, blank):
        end = (limit if best is None else best - base) + 7  # the magic is 4 bytes after the start of its record
        at = data.find(magic, 4, end)
        while at >= 0:
            if _is_record(data, at - 4, base, file, split) if magic != blank else _is_blank(data, at - 4, base, split):
                best = base + at - 4
                break
            at = data.find(magic, at + 1, end)
    return best


def _is_blank(data: bytes, at: int, base: int, split: Split) -> bool:
    """Return True for the blank record that fills the rest of a segment."""
    length, _ = record.SIZE_AND_MAGIC.unpack_from(data, at)
    return bool(base + at + length == split.base + os.path.getsize(split.path))


def _is_record(data: bytes, at: int, base: int, file: Any, split: Split) -> bool:
    if len(data) - at < record.HEAD_BYTES or record.physical_offset_at(data, at) != base + at:
        return False
    size, _ = record.SIZE_AND_MAGIC.unpack_from(data, at)
    if not record.FIXED_BYTES_V1 <= size <= min(_MAX_RECORD, split.log_end - base - at):
        return False
    whole = os.pread(file.fileno(), size, base + at - split.base)
    return len(find_records(whole, base + at).records) == 1
