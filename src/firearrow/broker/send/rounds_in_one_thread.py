"""Rounds of a store without threads: what a round wrote is made durable and answered before the round is over."""

from __future__ import annotations

from firearrow.broker.send.group_commit import GroupCommit
from firearrow.store.errors import StoreError


class RoundsInOneThread(GroupCommit):
    def end_round(self, now_ms: int) -> None:
        super().end_round(now_ms)
        if self._sync_flush:
            try:
                self.flushed(self._store.flush())
            except StoreError as error:
                self.flush_failed(str(error))
