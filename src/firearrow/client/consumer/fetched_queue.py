"""Fetched messages of one queue of a pull consumer, and the progress of its user.

    consumed <= handed <= next_offset

    consumed      all messages below are consumed: the offset to commit
    handed        all messages below were returned to the user
    next_offset   start of the next fetch; held and filtered messages are between `handed` and here

The object uses neither a clock nor the network. Filtered messages count as returned, and as consumed, once all messages before
them are: the offset of a queue without matching messages is committed, too.

An iteration leases messages in groups and takes them one by one, from any thread. The message taken last is in progress, those
before it are consumed, and those not taken return to the queue.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from firearrow.client.consumer.pull import PullResult, PullStatus
from firearrow.client.consumer.subscription import Subscription
from firearrow.client.errors import FirearrowError
from firearrow.client.message import MessageQueue, ReceivedMessage

MAX_MESSAGES: Final = 1_000
MAX_BYTES: Final = 100 * 1024 * 1024


class MessageLease:
    """Messages of one queue that an iteration takes one by one. `next` may be called from another thread than the rest."""

    __slots__ = ("messages", "taken")

    def __init__(self, messages: list[ReceivedMessage]) -> None:
        self.messages = messages
        self.taken = 0

    def next(self) -> ReceivedMessage | None:
        if self.taken >= len(self.messages):
            return None
        message = self.messages[self.taken]
        self.taken += 1
        return message

    def return_untaken(self) -> list[ReceivedMessage]:
        """Remove and return the messages that were not taken."""
        left = self.messages[self.taken :]
        del self.messages[self.taken :]
        return left


class FetchedQueue:
    """Held messages and offsets of one queue."""

    __slots__ = (
        "_bytes", "_held", "_lease", "consumed", "handed", "next_offset", "paused", "queue", "refusal", "saved", "subscription",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue, subscription: Subscription, offset: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.consumed = self.handed = self.next_offset = offset
        self.saved: int | None = None  # the offset committed last
        self.paused = False
        self.refusal: FirearrowError | None = None  # a permanent error of the broker, until a fetch succeeds
        self._held: deque[ReceivedMessage] = deque()
        self._lease: MessageLease | None = None
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<FetchedQueue {self.queue} at {self.handed}, {len(self._held)} held>"

    def __len__(self) -> int:
        return len(self._held)

    def add(self, result: PullResult) -> None:
        """Add the result of a fetch at `next_offset`."""
        self.refusal = None
        if result.status is PullStatus.OFFSET_MOVED:
            self.seek(result.next_offset)
            return
        self._held.extend(result.messages)
        for message in result.messages:
            self._bytes += message.store_size
        self.next_offset = result.next_offset
        self._skip_filtered()

    def hand_out(self, limit: int) -> list[ReceivedMessage]:
        """Return the next messages, at most `limit`."""
        held = self._held
        if limit >= len(held):
            messages = list(held)
            held.clear()
            self._bytes = 0
        else:
            messages = [held.popleft() for _ in range(limit)]
            self._bytes -= sum(message.store_size for message in messages)
        if messages:
            self.handed = messages[-1].queue_offset + 1
            if not held:
                self.handed = self.next_offset
        return messages

    def lease(self, limit: int) -> MessageLease:
        """Lease the next messages to an iteration."""
        self._lease = MessageLease(self.hand_out(limit))
        return self._lease

    def return_untaken(self) -> None:
        """Put leased messages that were not taken back into the queue."""
        left = [] if self._lease is None else self._lease.return_untaken()
        if left:
            self._held.extendleft(reversed(left))
            self._bytes += sum(message.store_size for message in left)
            self.handed = left[0].queue_offset

    def all_consumed(self) -> None:
        """Mark all returned and taken messages as consumed."""
        self.return_untaken()
        self._lease = None
        self.consumed = self.handed

    def note_taken(self) -> None:
        """Mark the taken messages but the last one as consumed."""
        if self._lease is not None and self._lease.taken:
            self.consumed = self._lease.messages[self._lease.taken - 1].queue_offset

    def seek(self, offset: int) -> None:
        """Continue at another offset; held and leased messages are dropped."""
        self.drop()
        self.consumed = self.handed = self.next_offset = offset

    def drop(self) -> None:
        """Drop the held and leased messages."""
        if self._lease is not None:
            self._lease.return_untaken()
            self._lease = None
        self._held.clear()
        self._bytes = 0

    @property
    def position(self) -> int:
        """The offset of the next message to return."""
        if self._lease is not None and self._lease.taken < len(self._lease.messages):
            return self._lease.messages[self._lease.taken].queue_offset
        return self.handed

    @property
    def ready(self) -> bool:
        return bool(self._held) and not self.paused

    @property
    def full(self) -> bool:
        return len(self._held) >= MAX_MESSAGES or self._bytes >= MAX_BYTES

    def _skip_filtered(self) -> None:
        if not self._held:
            in_progress = self.handed > self.consumed
            self.handed = self.next_offset
            if not in_progress:
                self.consumed = self.handed
