"""What a consumer holds of one queue: messages pulled and not consumed yet.

Messages come in the order of their offsets and are finished in any order. The offset to commit is the smallest one that is not
finished, or, when everything is, the one after the last: whatever happens, no message below it is lost, and what was finished
above it may be delivered once more.

    order      11 12 13 14 15 16        offsets as they came
    unfinished    12    14 15 16        finished are 11 and 13: the offset to commit is 12

A plain object that belongs to the event loop's thread; worker threads only read `dropped`. It never looks at a clock.

Flow control: nothing more is pulled while `MAX_MESSAGES` or `MAX_BYTES` are held, or, for concurrent consumption, while the
oldest and the newest are more than `MAX_SPAN` apart (one message that does not finish must not lead to endless redelivery).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from firearrow.client.message import MessageQueue, ReceivedMessage

MAX_MESSAGES: Final = 1_000
MAX_BYTES: Final = 100 * 1024 * 1024
MAX_SPAN: Final = 2_000
PULL_EXPIRES_MS: Final = 120_000
LOCK_EXPIRES_MS: Final = 30_000
NO_OFFSET: Final = -1


class ProcessQueue:
    __slots__ = (
        "_bytes", "_end", "_order", "_unfinished", "dropped", "dropped_ms", "last_consume_ms", "last_lock_ms", "last_pull_ms",
        "locked", "max_offset", "queue", "resting", "room_awaited", "running", "waiting",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        self.queue = queue
        self.dropped = False  # not ours any more: what is still held is not handed out, and nothing is committed for it
        self.dropped_ms = 0  # since when an orderly queue waits to be given back
        self.locked = False  # at the broker, for orderly consumption
        self.last_lock_ms = 0
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.max_offset = 0  # of the queue at the broker, as last heard
        self.running = False  # orderly: in a worker's hands, one turn at a time
        self.resting = False  # orderly: after a failure, or while the lock is lost
        self.waiting: deque[ReceivedMessage] = deque()  # orderly: held and not handed out
        self.room_awaited = False  # the pull loop waits until something is finished
        self._unfinished: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()
        self._bytes = 0
        self._end = NO_OFFSET  # one after the newest offset that came

    def __repr__(self) -> str:
        return f"<ProcessQueue {self.queue} {len(self._unfinished)} held{' dropped' if self.dropped else ''}>"

    # Filling and emptying.

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages that were pulled, in the order of their offsets."""
        if not messages:
            return
        unfinished, order = self._unfinished, self._order
        held = 0
        for message in messages:
            offset = message.queue_offset
            unfinished[offset] = message
            order.append(offset)
            held += message.store_size
        self._bytes += held
        self._end = messages[-1].queue_offset + 1

    def finish(self, messages: Iterable[ReceivedMessage]) -> int:
        """These are done with, one way or another. Returns the offset that may be committed now, NO_OFFSET if there is none."""
        unfinished, order = self._unfinished, self._order
        freed = 0
        for message in messages:
            if unfinished.pop(message.queue_offset, None) is not None:
                freed += message.store_size
        self._bytes -= freed
        while order and order[0] not in unfinished:
            order.popleft()
        return order[0] if order else self._end

    def holds(self, message: ReceivedMessage) -> bool:
        """False once it is finished, or was taken away because it took too long."""
        return message.queue_offset in self._unfinished

    def clear(self) -> None:
        """Forgets what is held: it will be pulled again."""
        self._unfinished.clear()
        self._order.clear()
        self.waiting.clear()
        self._bytes = 0
        self._end = NO_OFFSET

    # Looking.

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    @property
    def commit_offset(self) -> int:
        """The offset to commit; NO_OFFSET before anything was pulled."""
        return self._order[0] if self._order else self._end

    @property
    def span(self) -> int:
        return self._end - 1 - self._order[0] if self._order else 0

    def oldest(self) -> ReceivedMessage | None:
        return self._unfinished[self._order[0]] if self._order else None

    def newest_offset(self) -> int:
        return self._end - 1 if self._order else 0

    def full(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES, max_span: int | None = MAX_SPAN) -> str | None:
        """Why nothing more should be pulled; None if there is room. `max_span` None is for orderly consumption."""
        if len(self._unfinished) >= max_messages:
            return f"{len(self._unfinished)} messages are held, the limit is {max_messages}"
        if self._bytes >= max_bytes:
            return f"{self._bytes} bytes are held, the limit is {max_bytes}"
        if max_span is not None and self.span > max_span:
            return f"the oldest and the newest message are {self.span} apart, the limit is {max_span}"
        return None

    def pull_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_pull_ms > PULL_EXPIRES_MS

    def lock_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_lock_ms > LOCK_EXPIRES_MS
