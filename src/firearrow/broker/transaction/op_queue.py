"""The op topic: which half messages need nothing more, written many at a time.

An op message has the tag `d` and names half messages by their queue offsets. Two forms of its body are read, the second is
written:

    123          one (4.9)
    2,3,5,       several, in any order, a comma after each (5.x)

Decisions are gathered and written together when they fill `transactionOpMsgMaxSize` bytes or the oldest of them is
`transactionOpBatchInterval` old. Until then a decision is in the memory only. That is safe: a commit is also in the log as the
record that it made, and a rollback that was lost is asked for again.

Invariants
- An op message stands in the log behind the records of the commits that it speaks of.
- Every commit whose record stands before the newest op message is named by some op message: `write` leaves nothing out. After
  a crash only the log behind that message has to be searched for commits that no op message names.
- `first_needed` moves only over op messages that speak of nothing at or above the first open half.
"""

from __future__ import annotations

from collections import deque

from firearrow.broker.message import BrokerMessage
from firearrow.broker.send.internal import InternalWriter
from firearrow.broker.settings import BrokerSettings
from firearrow.wire import properties
from firearrow.wire.names import TRANS_OP_HALF_TOPIC

REMOVE_TAG = "d"
_PROPERTIES = properties.encode({"TAGS": REMOVE_TAG, "WAIT": "true"})


def parse_offsets(body: bytes) -> list[int]:
    """The half messages that an op message names; what is no number is left out."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) < 20]


class OpMessages:
    def __init__(self, settings: BrokerSettings, inner: InternalWriter, host: bytes, first_needed: int) -> None:
        self.first_needed = first_needed
        self.written_at = 0  # log offset of the newest op message
        self._settings = settings
        self._inner = inner
        self._host = host
        self._gathered: list[int] = []
        self._size = 0
        self._oldest_ms = 0
        self._kept: deque[tuple[int, int]] = deque()  # (op queue offset, highest half it names), oldest first

    def add(self, half: int, now_ms: int) -> bool:
        """Whether those that were gathered are due now."""
        if not self._gathered:
            self._oldest_ms = now_ms
        self._gathered.append(half)
        self._size += len(str(half)) + 1
        return self._are_due(now_ms)

    def remember(self, op_offset: int, highest: int) -> None:
        """An op message that was there when the broker was started."""
        self._kept.append((op_offset, highest))

    def due(self, now_ms: int) -> bool:
        return bool(self._gathered) and self._are_due(now_ms)

    def _are_due(self, now_ms: int) -> bool:
        settings = self._settings
        waited_ms = now_ms - self._oldest_ms
        return self._size >= settings.transaction_op_msg_max_size or not 0 <= waited_ms < settings.transaction_op_batch_interval

    def write(self, now_ms: int, *, mark: bool = False) -> None:
        """Writes what was gathered. `mark`: also if that is nothing; such an op message names -1, which is no half message."""
        halves = self._gathered or ([-1] if mark else [])
        if not halves:
            return
        body = "".join([f"{half}," for half in halves]).encode()
        message = BrokerMessage(TRANS_OP_HALF_TOPIC, 0, body, _PROPERTIES, 0, 0, now_ms, self._host)
        self._inner.deliver(message, now_ms)
        self._kept.append((message.queue_offset, max(halves)))
        self.written_at = message.physical_offset
        self._gathered = []
        self._size = 0

    def advance(self, first_open: int) -> int:
        kept = self._kept
        while kept and kept[0][1] < first_open:
            self.first_needed = kept.popleft()[0] + 1
        return self.first_needed
