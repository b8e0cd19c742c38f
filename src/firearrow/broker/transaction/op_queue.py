"""The op topic: queue offsets of decided half messages, written in batches.

An op message has the tag `d` and names half messages by their queue offsets. Two forms of its body are read, the second is
written:

    123          one (4.9)
    2,3,5,       several, in any order, a comma after each (5.x)

Decisions are batched until they fill `transactionOpMsgMaxSize` bytes or the oldest is `transactionOpBatchInterval` old. Until
then a decision is in memory only. That is safe: a commit is also in the log as the committed record, and after a lost rollback
the producer is checked again.

Invariants:
- An op message follows the records of the commits it names.
- Every commit before the newest op message is named by an op message: `write` writes all pending decisions. After a crash only
  the log after that message has to be searched for commits that no op message names.
- `first_needed` advances only past op messages that name no half message at or above the first open one.
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
    """Return the half messages named by an op message. Malformed parts are ignored."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) < 20]


class OpMessages:
    """Pending decisions, and the op messages that are still needed."""

    def __init__(self, settings: BrokerSettings, writer: InternalWriter, host: bytes, first_needed: int) -> None:
        self.first_needed = first_needed
        self.written_at = 0  # log offset of the newest op message
        self._settings = settings
        self._writer = writer
        self._host = host
        self._pending: list[int] = []
        self._size = 0
        self._oldest_ms = 0
        self._kept: deque[tuple[int, int]] = deque()  # (op queue offset, highest half offset it names), oldest first

    def add(self, half: int, now_ms: int) -> bool:
        """Add a decided half message. Return whether the batch is due."""
        if not self._pending:
            self._oldest_ms = now_ms
        self._pending.append(half)
        self._size += len(str(half)) + 1
        return self._batch_due(now_ms)

    def add_stored(self, op_offset: int, highest: int) -> None:
        """Add an op message found in the log at the start."""
        self._kept.append((op_offset, highest))

    def is_due(self, now_ms: int) -> bool:
        """Return whether there is a batch to write now."""
        return bool(self._pending) and self._batch_due(now_ms)

    def _batch_due(self, now_ms: int) -> bool:
        settings = self._settings
        waited_ms = now_ms - self._oldest_ms
        return self._size >= settings.transaction_op_msg_max_size or not 0 <= waited_ms < settings.transaction_op_batch_interval

    def write(self, now_ms: int, *, mark: bool = False) -> None:
        """Write the pending decisions. With `mark`, write an op message even without any; it names -1, which never exists."""
        halves = self._pending or ([-1] if mark else [])
        if not halves:
            return
        body = "".join([f"{half}," for half in halves]).encode()
        message = BrokerMessage(TRANS_OP_HALF_TOPIC, 0, body, _PROPERTIES, 0, 0, now_ms, self._host)
        self._writer.deliver(message, now_ms)
        self._kept.append((message.queue_offset, max(halves)))
        self.written_at = message.physical_offset
        self._pending = []
        self._size = 0

    def advance(self, first_open: int) -> int:
        """Drop op messages that name nothing at or above `first_open`. Return `first_needed`."""
        kept = self._kept
        while kept and kept[0][1] < first_open:
            self.first_needed = kept.popleft()[0] + 1
        return self.first_needed
