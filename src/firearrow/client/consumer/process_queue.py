"""Process queue: the messages of one queue that were pulled and are not consumed yet.

Messages arrive in the order of their offsets and are finished in any order. The offset to commit is the smallest unfinished one,
or the one after the last if all are finished. No message below it can be lost; finished messages above it may be redelivered.

    order      11 12 13 14 15 16        offsets in order of arrival
    unfinished    12    14 15 16        11 and 13 are finished: the offset to commit is 12

The object belongs to the event loop's thread; worker threads only read `dropped`. It uses no clock.

Flow control: pulling pauses while `MAX_MESSAGES` or `MAX_BYTES` are held, or, for concurrent consumption, while the oldest and
the newest offset are more than `MAX_SPAN` apart, which bounds the redelivery caused by one message that does not finish.
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
    """The unfinished messages of one queue and the state of its consumption."""

    __slots__ = (
        "_bytes", "_end", "_order", "_unfinished", "dropped", "dropped_ms", "last_consume_ms", "last_lock_ms", "last_pull_ms",
        "locked", "max_offset", "queue", "running", "suspended", "waiting", "wake_pull_loop",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        self.queue = queue
        self.dropped = False  # no longer ours: held messages are not delivered, and nothing is committed
        self.dropped_ms = 0  # since when an orderly queue waits to be released
        self.locked = False  # at the broker, for orderly consumption
        self.last_lock_ms = 0
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.max_offset = 0  # of the queue at the broker, as last reported
        self.running = False  # orderly: a turn is running
        self.suspended = False  # orderly: after a failure, or while the lock is lost
        self.waiting: deque[ReceivedMessage] = deque()  # orderly: held and not in a turn
        self.wake_pull_loop = False  # the pull loop waits until messages are finished
        self._unfinished: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()
        self._bytes = 0
        self._end = NO_OFFSET  # one after the newest offset

    def __repr__(self) -> str:
        return f"<ProcessQueue {self.queue} {len(self._unfinished)} held{' dropped' if self.dropped else ''}>"

    # Adding and removing.

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add pulled messages, in the order of their offsets."""
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
        """Remove messages. Return the offset that may be committed now, or NO_OFFSET."""
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
        """Return False once the message is finished or was sent back."""
        return message.queue_offset in self._unfinished

    def clear(self) -> None:
        """Remove all messages; they will be pulled again."""
        self._unfinished.clear()
        self._order.clear()
        self.waiting.clear()
        self._bytes = 0
        self._end = NO_OFFSET

    # State.

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
        """Return the reason to pause pulling, or None. Orderly consumption has no `max_span`."""
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
