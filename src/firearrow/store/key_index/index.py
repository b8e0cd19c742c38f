"""The key index: from (topic, key) to the physical offsets of the messages with the key.

Every message has an entry for its UNIQ_KEY, one for each token of its KEYS and, last, one for its TAGS, in this order:

    UNIQ_KEY, KEYS    hash of  topic#key
    TAGS              hash of  topic#T#tags

Entries fill files (format: key_index/file.py) named after the local time of their creation, `yyyyMMddHHmmssSSS`. A full file is
followed by the next, even between two entries of one message. Hashes may collide, so the caller of `query` compares topic and
key.

The index is a function of the commit log. Messages are added in log order, each once: `next_offset` is the first physical offset
not added yet, and messages below it are ignored. After a crash it is therefore enough to add the log again from any record at or
below `next_offset`. The files do not depend on how messages are grouped into runs.

Cost: a run of 1024 messages takes 0.25 us per message with native code and 1 us without, and one write for each file touched.
Entries are not buffered here; the caller decides the size of a run.

Threads: `add_run`, `add_scan` and `query` may be called from any thread, also during `flush` in another one, which spends its
time in fdatasync. All other methods exclude `flush` and each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from threading import Lock

import numpy as np
import numpy.typing as npt

from firearrow.store.accelerated import native
from firearrow.store.commitlog.log import IndexInput
from firearrow.store.commitlog.scan import ScanResult
from firearrow.store.filesystem import Disk
from firearrow.store.key_index.file import IndexFile
from firearrow.store.key_index.hashing import (
    MASK_32,
    HashArray,
    IntArray,
    PropertySpans,
    find_spans,
    hash_spans,
    hash_uniform_runs,
)
from firearrow.wire.java_hash import hash_code
from firearrow.wire.record import TRANSACTION_ROLLBACK, TRANSACTION_TYPE

_PREFIX_CACHE_LIMIT = 1 << 16
_NAME_LENGTH = 17


class KeyIndex:
    """The index files of a store directory."""

    def __init__(self, disk: Disk, directory: str, *, slot_count: int = 5_000_000, entry_limit: int = 20_000_000) -> None:
        if slot_count < 1 or entry_limit < 2:
            raise ValueError(
                f"key index with maxHashSlotNum={slot_count}, maxIndexNum={entry_limit}: expected at least 1 slot and 2 entries"
            )
        self._disk = disk
        self._directory = directory
        self._slot_count = slot_count
        self._entry_limit = entry_limit
        self.files: list[IndexFile] = []  # oldest first; only the last accepts entries
        self._unsynced: list[IndexFile] = []  # full; slots and header not on disk yet
        self._new_names = False  # files were created or deleted since the directory was last synced
        self._flushed: tuple[IndexFile, bytes] | None = None  # the newest file and its header as last flushed
        self.next_offset = 0  # physical offset below which every record has its entries
        self._added_of_next = 0  # entries that the message at next_offset already has, after a write failed between two of them
        # Store time of the last entry of the last full file that is durable: the checkpoint's indexMsgTimestamp
        self.full_ms = 0
        self._repaired: list[str] = []  # files with damaged slots, found by `open`
        self._lock = Lock()  # guards the state above
        self._sync_lock = Lock()  # held during a sync; always acquired before the other

    # -- state ----------------------------------------------------------------------------------------------------------

    @property
    def last_offset(self) -> int:
        """Physical offset of the last message with entries, or 0."""
        return self.files[-1].end_offset if self.files else 0

    @property
    def last_ms(self) -> int:
        """Store time of the last message with entries, or 0."""
        return self.files[-1].end_ms if self.files else 0

    @property
    def file_names(self) -> list[str]:
        return [_name(file) for file in self.files]

    # -- opening and closing -------------------------------------------------------------------------------------------

    def open(self, *, clean: bool, trusted_ms: int = 0) -> list[str]:
        """Load the files. Return one line for each file that was repaired or dropped.

        The messages of a dropped file must be added again from `next_offset`.

        After a crash (`clean` false) a full file that ends at or before `trusted_ms`, the checkpoint's indexMsgTimestamp, is
        trusted; in later ones every entry is checked. The entries of the last message, which may be incomplete, are dropped.
        """
        self._disk.mkdirs(self._directory)
        lost: list[str] = []
        names = [name for name in self._disk.listdir(self._directory) if len(name) == _NAME_LENGTH and name.isdecimal()]
        for number, name in enumerate(names):
            file = IndexFile(self._disk, self._path(name), self._slot_count, self._entry_limit)
            problem = self._load(file, clean, trusted_ms, last=number == len(names) - 1)
            if problem is not None:
                lost.append(f"index file {name}: {problem}")
            if file.empty:
                self._delete(file)
            else:
                self.files.append(file)
            if problem is not None:
                lost += self._drop(names[number + 1 :])
                break
        self.full_ms = max((file.end_ms for file in self.files if file.full), default=0)
        if self.files:
            self.next_offset = self.files[-1].end_offset + 1
            if not clean or lost:
                self.truncate_to(self.files[-1].end_offset)
        if self._new_names:
            # A deleted file must not reappear beside its replacement.
            self._disk.fsync_dir(self._directory)
            self._new_names = False
        return lost + self._repaired

    def _load(self, file: IndexFile, clean: bool, trusted_ms: int, *, last: bool) -> str | None:
        """Return None if the file is valid, otherwise the problem. `file` then holds the valid part."""
        try:
            if not file.load_header():
                file.count = 1
                return f"not {file.length} bytes long, or its header is damaged; dropped"
            before = self.files[-1].end_offset if self.files else 0
            if not file.empty and file.begin_offset < before:
                file.count = 1
                return f"begins at {file.begin_offset}, before the end {before} of the previous file; dropped"
            if file.is_linked() if clean else file.full and file.end_ms <= trusted_ms:
                return None
            counted = file.count
            if not file.rebuild():
                return f"entry {file.count} of {counted - 1} is damaged; truncated there"
            if clean:
                self._repaired.append(f"index file {_name(file)}: its hash slots lacked entries and were rebuilt")
            if not last:
                if not file.full:
                    # A file is complete on disk before the header of the next one counts entries.
                    return f"lacks {file.entry_limit - file.count} entries, but files follow; those are dropped"
                file.write_slots()
                file.sync()
                file.release_slots()
            return None
        finally:
            if not last:
                file.close()

    def _drop(self, names: list[str]) -> list[str]:
        for name in names:
            self._disk.unlink(self._path(name))
            self._new_names = True
        return [f"index file {name}: dropped with the previous one" for name in names]

    def flush(self) -> None:
        """Make everything added so far durable. It need not be added again after a crash."""
        with self._sync_lock:
            self._flush()

    @property
    def should_write_behind(self) -> bool:
        """True if `write_behind` is worth a call."""
        return bool(self.files) and self.files[-1].should_write_behind

    def write_behind(self) -> None:
        """Start writing recent entries to disk, so that a later flush, of the log too, finds the disk idle."""
        with self._sync_lock:
            with self._lock:
                newest = self.files[-1] if self.files else None
            if newest is not None and newest.slots is not None and newest.should_write_behind:
                newest.write_behind()

    def _flush(self) -> None:
        with self._lock:
            full, self._unsynced = self._unsynced, []
            newest = self.files[-1] if self.files else None
            header = newest.header() if newest is not None else b""
            new_names, self._new_names = self._new_names, False
        try:
            if new_names:
                self._disk.fsync_dir(self._directory)
                new_names = False
            while full:
                self._complete(full[0])
                with self._lock:
                    self._release(full.pop(0))
            if newest is not None and newest.slots is not None and self._flushed != (newest, header):
                # The header must only count durable entries, because the slots are rebuilt from them after a crash.
                newest.sync()
                newest.write_header(header)
                self._flushed = (newest, header)
        except OSError:
            with self._lock:
                self._unsynced[:0] = full
                self._new_names |= new_names
            raise

    def _complete(self, file: IndexFile) -> None:
        """Write the slots and the final header of a full file."""
        file.write_slots()
        file.sync()
        file.write_header(file.header())
        file.sync()

    def _release(self, file: IndexFile) -> None:
        """Release the memory of a file that is complete on disk. The lock is held."""
        file.release_slots()
        file.close()
        self.full_ms = file.end_ms

    def close(self) -> None:
        """Complete the files, as a clean stop must."""
        with self._sync_lock:
            self._flush()
            for file in self.files[-1:]:
                file.write_slots()
                file.sync()
                file.release_slots()
                file.close()

    # -- adding --------------------------------------------------------------------------------------------------------

    def add_run(self, run: list[IndexInput], now_ms: int) -> None:
        """Add messages in log order.

        The caller leaves out rolled-back half messages. After an OSError add the same run again, or one that covers
        `next_offset`.
        """
        if not run:
            return
        with self._lock:
            if run[0][0] < self.next_offset:
                run = run[bisect_left(run, self.next_offset, key=itemgetter(0)) :]
                if not run:
                    return
            if native is None:
                hashes, offsets, store_ms = _hash_run(run)
            else:
                hashes, offsets, store_ms = (np.frombuffer(column, np.int64) for column in native.hash_keys(run))
            self._put(hashes, offsets, store_ms, now_ms)
            self.next_offset = run[-1][0] + 1

    def add_scan(self, scan: ScanResult, now_ms: int) -> None:
        """Add the records of a scan of the log, except those already added and rolled-back half messages."""
        if not len(scan):
            return
        with self._lock:
            wanted = (scan.offset >= self.next_offset) & (scan.sys_flag & TRANSACTION_TYPE != TRANSACTION_ROLLBACK)
            prefixes = np.array([_prefixes[topic] for topic in scan.topics], np.uint64)[scan.topic_id]
            first = 0
            for spans in scan.spans:
                group = slice(first, first + spans.count)
                first += spans.count
                message, hashes = _hash_spans_with_prefix(spans.only(wanted[group]), prefixes[group])
                self._put(_key_hashes(hashes), scan.offset[group][message], scan.store_ms[group][message], now_ms)
            self.next_offset = max(self.next_offset, int(scan.offset[-1]) + 1)

    def _put(self, hashes: IntArray, offsets: IntArray, store_ms: IntArray, now_ms: int) -> None:
        total = len(offsets)
        if not total:
            return
        done = self._added_of_next if offsets[0] == self.next_offset else 0
        self._added_of_next = 0
        try:
            while done < total:
                file = self._file_with_space(now_ms)
                end = min(total, done + file.entry_limit - file.count)
                file.put(hashes[done:end], offsets[done:end], store_ms[done:end])
                done = end
        except OSError:  # perhaps between two entries of a message
            self.next_offset = int(offsets[done])
            self._added_of_next = done - bisect_left(offsets, self.next_offset)
            raise

    def _file_with_space(self, now_ms: int) -> IndexFile:
        before = self.files[-1] if self.files else None
        if before is not None and not before.full:
            return before
        file = IndexFile(self._disk, self._path(self._new_name(now_ms)), self._slot_count, self._entry_limit)
        file.create(before)
        self._new_names = True
        self.files.append(file)
        if before is not None:
            self._unsynced.append(before)
        return file

    def _new_name(self, now_ms: int) -> str:
        """Return a name after the current time, but after the newest name: names ascend even when the clock does not."""
        name = int(f"{datetime.fromtimestamp(now_ms // 1000):%Y%m%d%H%M%S}{now_ms % 1000:03d}")
        if self.files:
            name = max(name, int(_name(self.files[-1])) + 1)
        return f"{name:0{_NAME_LENGTH}d}"

    # -- lookup -------------------------------------------------------------------------------------------------------

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, kind: str = "K") -> list[int]:
        """Return the physical offsets of up to `max_num` messages stored within [begin_ms, end_ms], newest first.

        Times have a resolution of one second. `kind` is T for a tag; K and U are equivalent.
        """
        text = f"{topic}#T#{key}" if kind == "T" else f"{topic}#{key}"
        key_hash = abs(hash_code(text))
        if key_hash > 0x7FFFFFFF:
            key_hash = 0
        found: dict[int, None] = {}  # ordered; a message may have the same key twice
        with self._lock:
            for file in reversed(self.files):
                if file.overlaps(begin_ms, end_ms):
                    found.update(dict.fromkeys(file.find(key_hash, begin_ms, end_ms, max_num - len(found))))
                    if file.slots is None:
                        file.close()
                if file.begin_ms < begin_ms or len(found) >= max_num:
                    break
        return list(found)

    # -- truncation and deletion ---------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of all messages at or above this physical offset. Durable on return."""
        with self._sync_lock, self._lock:
            self._truncate(offset)
            if offset <= self.next_offset:
                self.next_offset, self._added_of_next = offset, 0

    def _truncate(self, offset: int) -> None:
        changed = False
        while self.files and self.files[-1].begin_offset >= offset:
            self._delete(self.files.pop())
            changed = True
        if self.files:
            newest = self.files[-1]
            if newest in self._unsynced:
                self._unsynced.remove(newest)
            count = newest.count_below(offset)
            if count < newest.count:
                newest.truncate(count)
                changed = True
            if changed:
                # At once: after a crash the old header must not count entries written later. And a header that counts entries
                # implies that the previous files are complete.
                while self._unsynced:
                    self._complete(self._unsynced[0])
                    self._release(self._unsynced.pop(0))
                newest.sync()
                newest.write_header(newest.header())
                newest.sync()
                self._flushed = None
        self.full_ms = min(self.full_ms, max((file.end_ms for file in self.files[:-1]), default=0))
        if changed:
            self._disk.fsync_dir(self._directory)

    def names_before(self, min_offset: int) -> list[str]:
        """Return the files that `delete_before` would delete."""
        with self._lock:
            return [_name(file) for file in self.files[:-1] if file.end_offset < min_offset]

    def delete_before(self, min_offset: int) -> list[str]:
        """Delete the oldest files that refer only to records below `min_offset`, never the newest. Return their names."""
        deleted = []
        with self._sync_lock, self._lock:
            while len(self.files) > 1 and self.files[0].end_offset < min_offset:
                file = self.files.pop(0)
                self._delete(file)
                deleted.append(_name(file))
        return deleted

    def _delete(self, file: IndexFile) -> None:
        if file in self._unsynced:
            self._unsynced.remove(file)
        file.delete()
        self._new_names = True

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


class _Prefixes(dict[str, int]):
    """Cache of the hashed key prefixes of a topic: `topic#` in the upper 32 bits, `topic#T#` in the lower."""

    def __missing__(self, topic: str) -> int:
        if len(self) >= _PREFIX_CACHE_LIMIT:
            self.clear()
        hashes = self[topic] = ((hash_code(topic + "#") & MASK_32) << 32) | (hash_code(topic + "#T#") & MASK_32)
        return hashes


_prefixes = _Prefixes()


def _hash_run(run: list[IndexInput]) -> tuple[IntArray, IntArray, IntArray]:
    """Return hash, physical offset and store time of every entry, as `native.hash_keys` does."""
    all_offsets, all_ms, topics, properties = zip(*run, strict=True)
    offsets, store_ms = np.array(all_offsets, np.int64), np.array(all_ms, np.int64)
    assert (offsets[1:] > offsets[:-1]).all(), "messages must be in log order"
    prefixes = _prefixes_of(topics)
    tables, rest = hash_uniform_runs(properties)
    messages: list[IntArray] = []
    hashes: list[HashArray] = []
    for table in tables:
        own = prefixes if len(prefixes) == 1 else prefixes[table.numbers]
        for column, tagged in enumerate(table.tagged):
            prefix = (own if tagged else own >> np.uint64(32)).astype(np.uint32)
            table.hashes[:, column] += prefix * table.factors[:, column]
        messages.append(np.repeat(table.numbers, len(table.tagged)))
        hashes.append(table.hashes.ravel())
    if rest:
        own = np.broadcast_to(prefixes, offsets.shape)[rest]
        message, others = _hash_spans_with_prefix(find_spans([properties[number] for number in rest]), own)
        messages.append(np.array(rest)[message])
        hashes.append(others)
    if len(messages) == 1:
        message, key_hashes = messages[0], hashes[0]
    else:
        message = np.concatenate(messages)
        order = _by_message(message)
        message, key_hashes = message[order], np.concatenate(hashes)[order]
    return _key_hashes(key_hashes), offsets[message], store_ms[message]


def _merge(spans: PropertySpans) -> tuple[IntArray, IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Return message, start, length and whether it is TAGS of all entries, by message, then UNIQ_KEY, KEYS, TAGS."""
    kinds = [kind for kind in (spans.unique_keys, spans.keys, spans.tags) if len(kind)]
    if kinds and all(kind.one_each for kind in kinds):
        start = np.stack([kind.start for kind in kinds], axis=1).ravel()
        length = np.stack([kind.length for kind in kinds], axis=1).ravel()
        tagged = np.array([kind is spans.tags for kind in kinds])
        return np.repeat(kinds[0].message, len(kinds)), start, length, np.tile(tagged, spans.count)
    kinds = [spans.unique_keys, spans.keys, spans.tags]
    message = np.concatenate([kind.message for kind in kinds])
    order = _by_message(message)
    start = np.concatenate([kind.start for kind in kinds])
    length = np.concatenate([kind.length for kind in kinds])
    return message[order], start[order], length[order], order >= len(message) - len(spans.tags)


def _hash_spans_with_prefix(spans: PropertySpans, prefixes: npt.NDArray[np.uint64]) -> tuple[IntArray, HashArray]:
    """Return message and key hash of all entries, in order. `prefixes` has one element per message."""
    message, start, length, tagged = _merge(spans)
    hashes, factors = hash_spans(spans.data, start, length)
    both = np.concatenate((prefixes >> np.uint64(32), prefixes)).astype(np.uint32)  # for keys, then for tags
    hashes += both[message + tagged * spans.count] * factors
    return message, hashes


def _by_message(message: IntArray) -> IntArray:
    """Return the stable order of entries by message. Faster than a stable argsort."""
    return np.sort((message << 32) | np.arange(len(message))) & 0xFFFFFFFF


def _prefixes_of(topics: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the prefix of each message, or a single one if all have the same topic."""
    if topics.count(topics[0]) == len(topics):
        return np.full(1, _prefixes[topics[0]], np.uint64)
    return np.array(list(map(_prefixes.__getitem__, topics)), np.uint64)


def _key_hashes(hashes: HashArray) -> IntArray:
    """Return keyHash: the absolute value of Java's hash, 0 for -2**31."""
    key_hashes = np.abs(hashes.view(np.int32))
    key_hashes[key_hashes < 0] = 0
    return key_hashes.astype(np.int64)


def _name(file: IndexFile) -> str:
    return file.path.rpartition("/")[2]
