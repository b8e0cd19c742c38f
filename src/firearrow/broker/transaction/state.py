"""States of the half messages, by offset in the half queue.

A half message is *open* until it is committed, rolled back or given up. Each check copies an open message to the end of its
queue: the copy replaces it, the old record is *moved*. All copies of a message have the same *origin*, the queue offset of its
first record. A decision about one copy is a decision about all.

    first_open     no half message below it is open. Saved as a consumer offset, from which a restart continues
    states         one byte for every half message from there on. A message that stays open holds back `first_open`; a million
                   decided ones above it cost a byte each, and the next open one is found by searching for a zero byte
    newest         origin -> open copy, for messages that were moved

Invariants:
- At most one copy of an origin is open, once recovery has read all of them.
- Only an open half message can change its state.
"""

from __future__ import annotations

OPEN = 0
COMMITTED = 1
ROLLED_BACK = 2
ENDED = 3  # one of the two, decided before the broker was started
MOVED = 4  # replaced by a newer copy
GIVEN_UP = 5
UNKNOWN = 6  # decided too long ago

KEEP_BELOW = 1 << 16  # states kept below `first_open`, to distinguish a repeated decision from a late one


class HalfStates:
    """The state table."""

    def __init__(self, first_open: int) -> None:
        self.first_open = first_open
        self._base = first_open  # queue offset of the first byte
        self._states = bytearray()
        self._newest: dict[int, int] = {}

    def state(self, offset: int) -> int:
        """Return the state of the half message at `offset`."""
        at = offset - self._base
        state = self._states[at] if 0 <= at < len(self._states) else OPEN
        return UNKNOWN if state == OPEN and offset < self.first_open else state

    def open_copy(self, origin: int, offset: int) -> int | None:
        """Return the open copy of the message at `offset`; None if it is decided."""
        copy = self._newest.get(origin, offset)
        return copy if self.state(copy) == OPEN else None

    def settle(self, offset: int, state: int) -> None:
        """Set the state of an open half message."""
        at = offset - self._base
        states = self._states
        if at >= len(states):
            states += bytes(at - len(states) + 1)
        if at >= 0 and states[at] == OPEN:
            states[at] = state

    def decide(self, origin: int, copy: int, state: int) -> None:
        """Decide about a message. `copy` is its open copy."""
        self.settle(copy, state)
        self._newest.pop(origin, None)

    def moved(self, origin: int, old: int, new: int) -> None:
        """Record that `new` replaces `old`."""
        self.settle(old, MOVED)
        self._newest[origin] = new

    def next_open(self, offset: int, end: int) -> int:
        """Return the first open half message from `offset` on, at most `end`."""
        offset = max(offset, self.first_open)
        at = self._states.find(OPEN, offset - self._base)
        if at < 0:
            at = max(offset - self._base, len(self._states))
        return min(self._base + at, end)

    def last_open(self, end: int) -> int | None:
        """Return the last open half message below `end`; None if all are decided."""
        if end <= self.first_open:
            return None
        if end - self._base > len(self._states):
            return end - 1
        at = self._states.rfind(OPEN, self.first_open - self._base, end - self._base)
        return None if at < 0 else self._base + at

    def open_count(self, end: int) -> int:
        """Return the number of open half messages. `end` is the end of the queue."""
        known = self._base + len(self._states)
        return self._states.count(OPEN, self.first_open - self._base) + max(end - max(known, self.first_open), 0)

    def is_moved(self, origin: int) -> bool:
        """Return whether the message has a known open copy."""
        return origin in self._newest

    def advance(self, end: int) -> int:
        """Advance `first_open` past all decided half messages. `end` is the end of the queue."""
        self.first_open = max(self.first_open, self.next_open(self.first_open, end))
        surplus = self.first_open - self._base - KEEP_BELOW
        if surplus > KEEP_BELOW:
            del self._states[:surplus]
            self._base += surplus
        return self.first_open

    def skip_to(self, offset: int) -> None:
        """Drop everything below `offset`: those records are deleted."""
        self.first_open = max(self.first_open, offset)
