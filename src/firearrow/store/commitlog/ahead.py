"""The next segment of the log is made before it is needed, by the housekeeper."""

from __future__ import annotations

from firearrow.store.commitlog.log import CommitLog
from firearrow.store.threads import Housekeeper

_EVERY_BYTES = 1024 * 1024  # of log between two looks


class SegmentPreallocator:
    """`due`: `look` again when the log is this long."""

    def __init__(self, log: CommitLog, housekeeper: Housekeeper) -> None:
        self.due = 0
        self._log = log
        self._housekeeper = housekeeper
        self._preparing: int | None = None

    def look(self) -> None:
        """Asks the housekeeper for the next segment in time."""
        log = self._log
        self.due = log.next_offset + _EVERY_BYTES
        number = log.wants_next_segment()
        if number is not None and self._preparing != number:
            self._preparing = number
            self._housekeeper.submit(lambda: self._prepare(number))

    def _prepare(self, number: int) -> None:
        """Housekeeper."""
        try:
            self._log.prepare(number)
        except OSError:
            self._preparing = None
            raise
