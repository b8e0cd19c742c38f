"""The policy of a broker without replicas."""

from __future__ import annotations

from typing import cast

import pytest

from firearrow.broker.send.ack_policy import DISK_STALL, AckPolicy, LocalFlush
from firearrow.broker.send.group_commit import GroupCommit


class RecordedCommit:
    def __init__(self) -> None:
        self.released: list[int] = []

    def release(self, offset: int) -> None:
        self.released.append(offset)


@pytest.mark.parametrize("sync_flush", [True, False])
def test_replies_wait_only_for_a_synchronous_flush(sync_flush: bool) -> None:
    policy: AckPolicy = LocalFlush(sync_flush=sync_flush)
    assert policy.defers is sync_flush


@pytest.mark.parametrize("sync_flush", [True, False])
def test_flush_releases_everything_up_to_its_offset(sync_flush: bool) -> None:
    commit = RecordedCommit()
    LocalFlush(sync_flush=sync_flush).flushed(cast(GroupCommit, commit), 4711)
    assert commit.released == [4711]


def test_writes_may_wait_for_the_end_of_a_flush() -> None:
    assert not LocalFlush(sync_flush=True).replicates


@pytest.mark.parametrize("flushed", [True, False])
def test_stall_is_always_attributed_to_the_disk(flushed: bool) -> None:
    assert LocalFlush(sync_flush=True).stall(flushed=flushed) is DISK_STALL
    assert "disk" in DISK_STALL.advice
