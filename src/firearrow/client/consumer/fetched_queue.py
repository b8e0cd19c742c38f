"""What a pull consumer holds of one queue: messages fetched and not handed out, and how far its user has come.

    consumed <= handed <= next_offset

    consumed      everything below is done with: what may be committed
    handed        everything below was handed out
    next_offset   where the next fetch begins; between `handed` and here is what is held, and what was filtered out

A plain object without clock or network. Filtered messages count as handed out once everything before them was, and as consumed
once that was: a queue in which nothing is wanted gets committed, too.

Whoever iterates is lent some messages at a time and takes them one by one, from whatever thread: the one before the last taken is
consumed, the last is in hand, the others come back if they are not taken.
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
    """Messages of one queue that are taken one by one. `next` may be called in another thread than all the rest."""

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

    def call_back(self) -> list[ReceivedMessage]:
        """What was not taken; it cannot be taken any more."""
        left = self.messages[self.taken :]
        del self.messages[self.taken :]
        return left


class FetchedQueue:
    __slots__ = (
        "_bytes", "_held", "_loan", "consumed", "handed", "next_offset", "paused", "queue", "refusal", "saved", "subscription",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue, subscription: Subscription, offset: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.consumed = self.handed = self.next_offset = offset
        self.saved: int | None = None  # what was committed last
        self.paused = False
        self.refusal: FirearrowError | None = None  # why the broker gives nothing, until it does again
        self._held: deque[ReceivedMessage] = deque()
        self._loan: MessageLease | None = None
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<FetchedQueue {self.queue} at {self.handed}, {len(self._held)} held>"

    def __len__(self) -> int:
        return len(self._held)

    def took(self, result: PullResult) -> None:
        """A fetch at `next_offset` brought this."""
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
        """The next messages, at most so many."""
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

    def lend(self, limit: int) -> MessageLease:
        """The next messages, to be taken one by one."""
        self._loan = MessageLease(self.hand_out(limit))
        return self._loan

    def call_back(self) -> None:
        """What was lent and not taken is held again."""
        left = [] if self._loan is None else self._loan.call_back()
        if left:
            self._held.extendleft(reversed(left))
            self._bytes += sum(message.store_size for message in left)
            self.handed = left[0].queue_offset

    def all_consumed(self) -> None:
        """What was handed out, or taken of what was lent, is done with."""
        self.call_back()
        self._loan = None
        self.consumed = self.handed

    def note_taken(self) -> None:
        """Of what was lent, all but the last one taken is done with."""
        if self._loan is not None and self._loan.taken:
            self.consumed = self._loan.messages[self._loan.taken - 1].queue_offset

    def seek(self, offset: int) -> None:
        """Goes on at another place; what is held or lent is dropped."""
        self.drop()
        self.consumed = self.handed = self.next_offset = offset

    def drop(self) -> None:
        """What is held or lent is not to be had any more."""
        if self._loan is not None:
            self._loan.call_back()
            self._loan = None
        self._held.clear()
        self._bytes = 0

    @property
    def position(self) -> int:
        """The offset of the next message that can be had."""
        if self._loan is not None and self._loan.taken < len(self._loan.messages):
            return self._loan.messages[self._loan.taken].queue_offset
        return self.handed

    @property
    def ready(self) -> bool:
        return bool(self._held) and not self.paused

    @property
    def full(self) -> bool:
        return len(self._held) >= MAX_MESSAGES or self._bytes >= MAX_BYTES

    def _skip_filtered(self) -> None:
        if not self._held:
            in_hand = self.handed > self.consumed
            self.handed = self.next_offset
            if not in_hand:
                self.consumed = self.handed
