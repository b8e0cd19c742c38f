"""Windows of idempotent producers: the last numbers of each producer and queue, with their offsets (see dedup.py)."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from firearrow.broker.requests.responses import Refused
from firearrow.wire.codes import ResponseCode


class Producers:
    """The windows of all pairs, the most recently used last."""

    def __init__(self, max_num: int, window_size: int) -> None:
        self.changes = 0  # counts changes, so that the snapshot is written only when needed
        self._max_num = max_num
        self._window_size = window_size
        self._windows: OrderedDict[tuple[str, str, int], ProducerWindow] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, producer: str, topic: str, queue_id: int) -> ProducerWindow:
        key = (producer, topic, queue_id)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = ProducerWindow(self._window_size)
            if len(self._windows) > self._max_num:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(key)
        return window

    def items(self) -> list[tuple[tuple[str, str, int], ProducerWindow]]:
        return list(self._windows.items())

    def forget(self, topic: str) -> None:
        for key in [key for key in self._windows if key[1] == topic]:
            del self._windows[key]
            self.changes += 1


class ProducerWindow:
    """The last numbers of one producer in one queue, in the order they were stored, and where they are.

    `floor` is the highest forgotten number: a number at or below it that is not remembered has an unknown state.
    """

    __slots__ = ("floor", "highest", "physical_offsets", "queue_offsets", "sequences", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.floor = -1
        self.highest = -1
        self.sequences = array("q")
        self.queue_offsets = array("q")
        self.physical_offsets = array("q")

    def find(self, sequence: int) -> int | None:
        """Return its index in the arrays; None if it is new. Rejects numbers too old to be recognised."""
        if sequence > self.highest:
            return None
        try:
            return self.sequences.index(sequence)
        except ValueError:
            if sequence > self.floor:
                return None
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: __PRODUCER_SEQ {sequence} is older than the last {len(self.sequences)} of this producer in "
            f"this queue (the highest is {self.highest}), and may have been stored before; send it under a new number",
        )

    def knows(self, sequence: int) -> bool:
        return sequence <= self.highest and (sequence <= self.floor or sequence in self.sequences)

    def restore(self, floor: int) -> None:
        """Take the floor of a saved window."""
        self.floor = floor
        self.highest = max(self.highest, floor)

    def add(self, sequence: int, queue_offset: int, physical_offset: int) -> None:
        self.sequences.append(sequence)
        self.queue_offsets.append(queue_offset)
        self.physical_offsets.append(physical_offset)
        if sequence > self.highest:
            self.highest = sequence
        self._shrink()

    def extend(self, sequences: Sequence[int], queue_offsets: Sequence[int], physical_offsets: Sequence[int]) -> None:
        """Add several increasing numbers above all others. If they exceed the window, the last are kept."""
        self.sequences.extend(sequences)
        self.queue_offsets.extend(queue_offsets)
        self.physical_offsets.extend(physical_offsets)
        self.highest = sequences[-1]
        self._shrink()

    def _shrink(self) -> None:
        together = self.size // 8 + 1  # forgotten together: moving the arrays for each one would cost more than the send
        surplus = (len(self.sequences) - self.size) // together * together
        if surplus > 0:
            self.floor = max(self.floor, *self.sequences[:surplus])
            del self.sequences[:surplus], self.queue_offsets[:surplus], self.physical_offsets[:surplus]
