"""`config/timercheck`: how far the timers were when it was last written.

4096 bytes, big-endian, zeros elsewhere:

    0    8  lastReadTimeMs           slots before this moment are delivered
    8    8  lastTimerLogFlushPos     the timer log below is durable
    16   8  lastTimerQueueOffset     messages of rmq_sys_wheel_timer below are in the timer log
    24   8  masterTimerQueueOffset   the same at the master
    32   8  state version            | the data version
    40   8  timestamp                |
    48   8  counter                  |
    256  8  "FIREARRO"               ours; Apache keeps it as it is
    264  8  precision in ms of the wheel
    272  8  1: everything was written in good order and nothing has happened since, 0: in use
    280  4  CRC-32 of bytes 0 to 55 and 256 to 279: once Apache has written the file, what is ours no longer counts
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from firearrow.store.disk import Disk

FILE_SIZE = 4096
_FIELDS = Struct(">qqqqqqq")
_OURS_AT = 256
_OURS = Struct(">8sqq")
_CRC = Struct(">I")
_MARK = b"FIREARRO"


@dataclass(slots=True)
class TimerCheckpoint:
    read_time_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0
    precision_ms: int = 0  # 0: not known, an Apache broker wrote this
    clean: bool = False

    @property
    def is_ours(self) -> bool:
        return self.precision_ms > 0

    def encode(self) -> bytes:
        page = bytearray(FILE_SIZE)
        _FIELDS.pack_into(
            page,
            0,
            self.read_time_ms,
            self.log_position,
            self.queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.timestamp_ms,
            self.counter,
        )
        _OURS.pack_into(page, _OURS_AT, _MARK, self.precision_ms, int(self.clean))
        _CRC.pack_into(page, _OURS_AT + _OURS.size, _checksum(page))
        return bytes(page)

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        page = data.ljust(FILE_SIZE, b"\0")
        checkpoint = cls(*_FIELDS.unpack_from(page))
        mark, precision_ms, clean = _OURS.unpack_from(page, _OURS_AT)
        if mark == _MARK and _CRC.unpack_from(page, _OURS_AT + _OURS.size)[0] == _checksum(page):
            checkpoint.precision_ms, checkpoint.clean = precision_ms, clean == 1
        return checkpoint


def load_timer_checkpoint(disk: Disk, path: str) -> TimerCheckpoint | None:
    """None when there is no such file: no timer message has ever been dealt with."""
    return TimerCheckpoint.decode(disk.read_bytes(path)) if disk.exists(path) else None


def save_timer_checkpoint(disk: Disk, path: str, checkpoint: TimerCheckpoint) -> None:
    """Overwrites the page in place: all that matters is in its first sector, which a disk writes whole or not at all."""
    file = disk.open(path, create=True, size=FILE_SIZE)
    try:
        file.pwrite(checkpoint.encode(), 0)
        file.fdatasync()
    finally:
        file.close()


def _checksum(page: bytes | bytearray) -> int:
    return crc32(page[_OURS_AT : _OURS_AT + _OURS.size], crc32(page[: _FIELDS.size]))
