"""What has become of every half message that may still matter, by its offset in the half queue.

A half message is *open* until it is committed, rolled back or given up. While it is open it is copied to the end of its queue
whenever its producers are asked about it: the copy takes its place, the old record is *moved*. All copies of one message have
the same *origin*, the queue offset of its first record, and a decision about any of them is a decision about all.

    first_open     below: nothing is open any more. Saved as a consumer offset, so that a restart begins there
    a byte for every half from there on: its fate. One that stays open holds up `first_open`; the million decided behind it
                   cost a byte each, and finding the next open one is a search for a zero byte
    newest         origin -> the copy that is open, for those that were moved

Invariants
- At most one copy of an origin is open, once recovery has seen all of them.
- A fate is final: only an open half can change.
"""

from __future__ import annotations

OPEN = 0
COMMITTED = 1
ROLLED_BACK = 2
ENDED = 3  # one of the two, decided before the broker was started
MOVED = 4  # a newer copy has taken its place
GIVEN_UP = 5
UNKNOWN = 6  # so long ago that it is not remembered

_KEEP_BELOW = 1 << 16  # fates remembered below `first_open`, so that a repeated decision can be told from a late one


class HalfStates:
    def __init__(self, first_open: int) -> None:
        self.first_open = first_open
        self._base = first_open  # the half that the first byte is about
        self._fates = bytearray()
        self._newest: dict[int, int] = {}

    def fate(self, offset: int) -> int:
        at = offset - self._base
        fate = self._fates[at] if 0 <= at < len(self._fates) else OPEN
        return UNKNOWN if fate == OPEN and offset < self.first_open else fate

    def open_copy(self, origin: int, offset: int) -> int | None:
        """Which copy of a message is open, if the one at `offset` is one of them; None: none is."""
        copy = self._newest.get(origin, offset)
        return copy if self.fate(copy) == OPEN else None

    def settle(self, offset: int, fate: int) -> None:
        """The half at `offset` is no longer open."""
        at = offset - self._base
        fates = self._fates
        if at >= len(fates):
            fates += bytes(at - len(fates) + 1)
        if at >= 0 and fates[at] == OPEN:
            fates[at] = fate

    def decide(self, origin: int, copy: int, fate: int) -> None:
        """`copy`, the open one of its origin, is decided, and with it the message."""
        self.settle(copy, fate)
        self._newest.pop(origin, None)

    def moved(self, origin: int, old: int, new: int) -> None:
        self.settle(old, MOVED)
        self._newest[origin] = new

    def next_open(self, offset: int, end: int) -> int:
        """The first open half from `offset` on; `end` if there is none below."""
        offset = max(offset, self.first_open)
        at = self._fates.find(OPEN, offset - self._base)
        if at < 0:
            at = max(offset - self._base, len(self._fates))
        return min(self._base + at, end)

    def last_open(self, end: int) -> int | None:
        """The last open half below `end`; None if there is none."""
        if end <= self.first_open:
            return None
        if end - self._base > len(self._fates):
            return end - 1
        at = self._fates.rfind(OPEN, self.first_open - self._base, end - self._base)
        return None if at < 0 else self._base + at

    def open_count(self, end: int) -> int:
        """How many are open below `end`, where the queue ends."""
        known = self._base + len(self._fates)
        return self._fates.count(OPEN, self.first_open - self._base) + max(end - max(known, self.first_open), 0)

    def is_moved(self, origin: int) -> bool:
        """Whether an open copy is known of a message."""
        return origin in self._newest

    def advance(self, end: int) -> int:
        """Moves `first_open` over everything that is settled; `end` is where the queue ends."""
        self.first_open = max(self.first_open, self.next_open(self.first_open, end))
        surplus = self.first_open - self._base - _KEEP_BELOW
        if surplus > _KEEP_BELOW:
            del self._fates[:surplus]
            self._base += surplus
        return self.first_open

    def skip_to(self, offset: int) -> None:
        """The records below are gone, and what was open there with them."""
        self.first_open = max(self.first_open, offset)
