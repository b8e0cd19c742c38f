"""`config/timercheck`: progress of the timers.

A page (atomic_file.py), zeros elsewhere:

    0    8  lastReadTimeMs           slots before this time are delivered
    8    8  lastTimerLogFlushPos     the timer log below is durable
    16   8  lastTimerQueueOffset     messages of rmq_sys_wheel_timer below are in the timer log
    24   8  masterTimerQueueOffset   the same on the master
    32   8  state version            | the data version
    40   8  timestamp                |
    48   8  counter                  |
    256  8  "FIREARRO"               our fields follow
    264  8  precision of the wheel in ms
    272  8  1: everything was saved at a clean stop and is unchanged, 0: in use, 2: copied from a master, without its timer log
    280  4  CRC-32 of bytes 0 to 55 and 256 to 279: our fields become invalid when Apache writes the file
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from struct import Struct

from firearrow.store.atomic_file import PageFormat, save_page
from firearrow.store.filesystem import Disk

_PAGE = PageFormat(Struct(">qqqqqqq"), Struct(">qq"), checks_apache=True)
_CLEAN, _COPIED = 1, 2


@dataclass(slots=True)
class TimerCheckpoint:
    """Values of the timer checkpoint."""

    read_time_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0
    precision_ms: int = 0  # 0: unknown, written by an Apache broker
    clean: bool = False
    copied: bool = False  # from a master: the timer log does not belong to it

    @property
    def is_ours(self) -> bool:
        return self.precision_ms > 0

    def encode(self) -> bytes:
        return _PAGE.encode(astuple(self)[:7], (self.precision_ms, _COPIED if self.copied else int(self.clean)))

    def encode_fields(self) -> bytes:
        """Encode Apache's fields only, as brokers send them to each other (request code 60)."""
        return self.encode()[: _PAGE.apache.size]

    def has_same_progress(self, other: TimerCheckpoint) -> bool:
        mine, theirs = ((one.read_time_ms, one.log_position, one.queue_offset) for one in (self, other))
        return mine == theirs

    @classmethod
    def decode_fields(cls, data: bytes) -> TimerCheckpoint:
        """Decode the result of `encode_fields`. ValueError if the size differs."""
        size = _PAGE.apache.size
        if len(data) != size:
            raise ValueError(f"a timer checkpoint has {size} bytes, not {len(data)}")
        return cls(*_PAGE.apache.unpack(data))

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        apache, ours = _PAGE.decode(data)
        checkpoint = cls(*apache)
        checkpoint.precision_ms, state = ours or (0, 0)
        checkpoint.clean, checkpoint.copied = state == _CLEAN, state == _COPIED
        return checkpoint


def load_timer_checkpoint(disk: Disk, path: str) -> TimerCheckpoint | None:
    """Load the checkpoint, None if the store never had a timer message."""
    return TimerCheckpoint.decode(disk.read_bytes(path)) if disk.exists(path) else None


def save_timer_checkpoint(disk: Disk, path: str, checkpoint: TimerCheckpoint) -> None:
    save_page(disk, path, checkpoint.encode())
