"""What one write of the commit log was about, handed on to whoever derives queues and index from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from firearrow.store.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from firearrow.store.commitlog.columns import ScanResult

# (physical offset, store time, topic, properties): what the key index wants to know of a message
IndexInput = tuple[int, int, str, bytes]


class AppendGroup:
    """What one `write_out` wrote: the log up to `end_offset`; the queues touched, each with its next offset after the group.

    For the key index: `index_input`, and, of a replica, `scans`, which lie behind it in the log.
    """

    __slots__ = ("end_offset", "index_input", "scans", "store_ms", "touched")

    def __init__(
        self,
        end_offset: int,
        store_ms: int,
        touched: dict[ConsumeQueue, int],
        index_input: list[IndexInput],
        scans: Sequence[ScanResult] = (),
    ) -> None:
        self.end_offset = end_offset
        self.store_ms = store_ms
        self.touched = touched
        self.index_input = index_input
        self.scans = scans
