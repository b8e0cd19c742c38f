"""Persistence of the deduplication state: a snapshot at some log offset, and the log from there on.

`config/idempotentProducers.json` is written for the first producer, every ten seconds while producers are active, and whenever
the log has grown by 64 MiB: so the part of the log to read at the start stays small.

    logOffset    the log from here on is not in the file
    producers    a list of
      producer, topic, queueId, floor
      entries    base64 of the numbers, oldest first, 24 bytes each: number, queue offset, physical offset (big-endian)

The file is never ahead of what is durable: it is written once the log is flushed up to its end at the time of the snapshot.
Without a usable file (data of another broker, a corrupt file, a very recent producer) the newest 64 MiB of the log are read
instead, from the start of a segment on.

The unique keys are not in the file. They are restored from the log of the last `deduplicateUniqKeyWindowMs`.
"""

from __future__ import annotations

import base64
import binascii
import logging
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from firearrow.broker.dedup.dedup import Dedup
from firearrow.broker.log_scan import first_stored_since
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.store.errors import StoreError
from firearrow.store.message_store import MessageStore
from firearrow.wire import fastjson
from firearrow.wire.errors import ProtocolError
from firearrow.wire.record import BLANK_BYTES, FIXED_BYTES_V1, MAGIC_BLANK, RECORD_MAGICS, SIZE_AND_MAGIC, Record, decode

FILE = "idempotentProducers.json"
SAVE_MS = 10_000
SAVE_BYTES = 64 * 1024 * 1024
NEWEST_MS = (3_000, 1_000, 300, 50)
NEWEST_BYTES = 4 * 1024 * 1024

_CHUNK = 4 * 1024 * 1024
_MARK = b"__PRODUCER_ID\x01"

log = logging.getLogger("firearrow.broker")


class DedupFile:
    def __init__(self, dedup: Dedup, store: MessageStore, config: ConfigFiles) -> None:
        self._dedup = dedup
        self._store = store
        self._config = config
        self._saved_offset = -1
        self._saved_changes = 0
        self._note: tuple[int, Callable[[], bytes]] | None = None  # log offset that must be durable first; makes the text
        self._next_ms = 0
        self._known_offset = 0  # of a replica: the log is replayed up to here

    def load(self, now_ms: int) -> None:
        """Restore the state, after the store is opened and before the first send."""
        keys = self._dedup.keys
        start = self._load_producers()
        since = None if keys is None else first_stored_since(self._store, now_ms - keys.window_ms)
        if keys is not None and since is not None and since < start:
            start = since  # replaying known numbers of producers again changes nothing
        self._replay(start)

    def follow(self) -> None:
        """Add the messages replicated from the master since the last call."""
        if self._known_offset < self._store.confirm_offset:
            self._replay(max(self._known_offset, self._store.min_offset))

    def learn_newest(self) -> None:
        """Restore the unique keys of the last seconds, as far as that is fast."""
        store, end = self._store, self._store.confirm_offset
        for since_ms in NEWEST_MS:
            start = first_stored_since(store, store.confirmed_ms - since_ms)
            if start is not None and end - start <= NEWEST_BYTES:
                for record in records(store, start, None):
                    self._dedup.replay(record)
                break
        if self._dedup.keys is not None:
            self._dedup.keys.stop_learning()

    def _replay(self, start: int) -> None:
        for record in records(self._store, start, None if self._dedup.keys is not None else _MARK):
            self._dedup.replay(record)
        self._known_offset = self._store.confirm_offset

    def tick(self, now_ms: int) -> None:
        """Called several times a second."""
        first = self._saved_offset < 0 and self._dedup.producers.changes > 0
        if first or now_ms >= self._next_ms:
            self._next_ms = now_ms + SAVE_MS
            self.note()
        self.save()

    def note(self) -> None:
        """Take a snapshot if enough has changed."""
        end, changes = self._store.appended_offset, self._dedup.producers.changes
        if self._note is None and (changes != self._saved_changes or end >= self._saved_offset + SAVE_BYTES):
            self._saved_changes, self._saved_offset = changes, end
            copied = [
                (*key, window.floor, window.sequences[:], window.queue_offsets[:], window.physical_offsets[:])
                for key, window in self._dedup.producers.items()
            ]
            self._note = (end, lambda: _text(end, copied))

    def save(self) -> None:
        """Write the snapshot in the background once the log is durable up to its offset."""
        if self._note is not None and self._store.flushed_offset >= self._note[0]:
            (_, make), self._note = self._note, None
            self._store.submit(lambda: self._config.save_text(FILE, make()))

    def _load_producers(self) -> int:
        """Load the file. Return the offset from which the log has to be read."""
        try:
            table = self._config.load(FILE)
            offset = table.get("logOffset")
            if isinstance(offset, int) and 0 <= offset <= self._store.max_offset:
                for entry in table.get("producers") or []:
                    self._take(entry)
                self._saved_offset = offset
                return max(offset, self._store.min_offset)
        except (StoreError, ValueError, TypeError, KeyError, binascii.Error) as error:
            log.warning("%s is of no use (%s): idempotent producers are read from the newest part of the log", FILE, error)
        # A record begins where a file of the log does.
        some = max(self._store.max_offset - SAVE_BYTES, 0)
        return max(some - some % self._store.settings.mapped_file_size_commit_log, self._store.min_offset)

    def _take(self, entry: dict[str, Any]) -> None:
        window = self._dedup.producers.window(str(entry["producer"]), str(entry["topic"]), int(entry["queueId"]))
        numbers = array("q", base64.b64decode(entry["entries"], validate=True))
        if sys.byteorder == "little":
            numbers.byteswap()
        window.restore(int(entry["floor"]))
        for sequence, queue_offset, physical_offset in zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=True):
            if physical_offset < self._store.max_offset:
                window.add(sequence, queue_offset, physical_offset)


def _text(log_offset: int, copied: list[tuple[str, str, int, int, array[int], array[int], array[int]]]) -> bytes:
    producers = []
    for producer, topic, queue_id, floor, sequences, queue_offsets, physical_offsets in copied:
        numbers = array("q", bytes(24 * len(sequences)))
        numbers[0::3], numbers[1::3], numbers[2::3] = sequences, queue_offsets, physical_offsets
        if sys.byteorder == "little":
            numbers.byteswap()
        entries = base64.b64encode(numbers.tobytes()).decode()
        producers.append({"producer": producer, "topic": topic, "queueId": queue_id, "floor": floor, "entries": entries})
    return fastjson.dumps_pretty({"logOffset": log_offset, "producers": producers})


def records(store: MessageStore, offset: int, mark: bytes | None) -> Iterator[Record]:
    """Yield the records from `offset`, a record boundary, on; with `mark`, only those that contain it.

    Unreadable parts are skipped up to the next segment.
    """
    if mark is not None and not _contains(store, offset, mark):
        return
    segment_size = store.settings.mapped_file_size_commit_log
    while offset < store.confirm_offset:
        data = store.read(offset, _CHUNK)
        at, needed = 0, 0
        hit = 0 if mark is None else data.find(mark)
        while at + BLANK_BYTES <= len(data):
            size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
            if magic not in RECORD_MAGICS or size < FIXED_BYTES_V1:
                if magic != MAGIC_BLANK:
                    log.warning("the log at %d cannot be read for idempotent producers; going on with the next file", offset + at)
                at = segment_size - offset % segment_size
                break
            if at + size > len(data):
                needed = size
                break
            if mark is None or at <= hit < at + size:
                yield from _decoded(data, at)
                hit = hit if mark is None else data.find(mark, at + size)
            at += size
        if at == 0:
            yield from _decoded(store.read(offset, needed), 0)
            at = needed or segment_size - offset % segment_size
        offset += at


def _contains(store: MessageStore, offset: int, mark: bytes) -> bool:
    """Return whether these bytes occur in the log from `offset` on; much faster than reading record by record."""
    segment_size = store.settings.mapped_file_size_commit_log
    while offset < store.confirm_offset:
        data = store.read(offset, _CHUNK)
        if mark in data:
            return True
        if not data:  # a file is missing
            offset += segment_size - offset % segment_size
        else:
            offset += len(data) if len(data) < _CHUNK else _CHUNK - len(mark)
    return False


def _decoded(data: bytes, at: int) -> Iterator[Record]:
    try:
        yield decode(data, at)
    except ProtocolError:
        return
