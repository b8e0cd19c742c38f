"""The commit log as a Raft log: whole records are replicated, damaged ones are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.ha.elected.store_log import StoreLog
from firearrow.ha.raft.interfaces import LogDamagedError
from firearrow.wire.record import MAGIC_BLANK, SIZE_AND_MAGIC, decode_all
from tests.broker.kit import Kit


class Member:
    def __init__(self, root: Path) -> None:
        self.commit_log = root / "store" / "commitlog" / f"{0:020d}"
        self.kit = Kit(root)
        self.store = self.kit.store
        self.drops = 0

    def put(self, *bodies: bytes) -> list[int]:
        """Store messages; return their physical offsets and the end of the log."""
        return [*(self.kit.put("T", 0, body) for body in bodies), self.store.max_offset]

    def opened(self) -> StoreLog:
        """Return a log that checks everything stored so far."""
        return StoreLog(self.store, self._drop)

    def _drop(self) -> None:
        self.drops += 1
        self.store.discard_pending()


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path / "a")
    yield made
    made.kit.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path / "b")
    yield made
    made.kit.close()


def test_older_bytes_are_cut_to_whole_records(member: Member) -> None:
    first, second, third, _ = member.put(b"1", b"2", b"3")
    data = member.opened().read(first, third - 1)
    assert len(data) == second
    assert [record.body for record in decode_all(data)] == [b"1"]


def test_record_longer_than_the_limit_is_returned_whole(member: Member) -> None:
    first, second, _ = member.put(b"x" * 5000, b"2")
    assert len(member.opened().read(first, 100)) == second


def test_newest_bytes_are_returned_as_they_are(member: Member) -> None:
    log = member.opened()
    first, end = member.put(b"1")
    assert log.read(first, end) == member.store.read_log(first, end)


def test_blank_at_the_end_of_a_segment_is_one_record(member: Member) -> None:
    *_, fourth, end = member.put(*[b"x" * 300_000] * 4)
    segment = member.store.settings.mapped_file_size_commit_log
    log = member.opened()
    at = blank_at = 0
    data = b""
    while at < segment:
        data = log.read(at, 64)
        at, blank_at = at + len(data), at
    size, magic = SIZE_AND_MAGIC.unpack_from(data)
    assert (at, fourth, end > segment) == (segment, segment, True)
    assert (magic & 0xFFFFFFFF, size, len(data)) == (MAGIC_BLANK & 0xFFFFFFFF, segment - blank_at, size)


def test_damaged_record_is_not_replicated(member: Member) -> None:
    first, second, end = member.put(b"good", b"damaged")
    with member.commit_log.open("r+b") as file:
        file.seek(end - 40)
        file.write(b"\xff" * 40)
    log = member.opened()
    assert len(log.read(first, end)) == second
    with pytest.raises(LogDamagedError, match=f"no record at {second}"):
        log.read(second, end - second)


def test_copied_log_ends_where_the_original_ends(member: Member, other: Member) -> None:
    _, second, end = member.put(b"1", b"2")
    leader, follower = member.opened(), other.opened()
    follower.append(0, leader.read(0, end))
    assert (follower.end_offset, follower.read(0, end)) == (end, leader.read(0, end))
    follower.truncate(second)
    assert follower.end_offset == second
    assert follower.sync() == second


def test_pending_messages_are_dropped_before_the_log_changes(member: Member, other: Member) -> None:
    _, end = other.put(b"1")
    data = other.opened().read(0, end)
    log = member.opened()
    member.store.append(
        member.store.queue("T", 0), b"pending", b"", 0, flag=0, sys_flag=0, born_ms=0, born_host=bytes(8), store_ms=0
    )
    log.append(0, data)
    assert (member.drops, log.end_offset) == (1, end)
    log.truncate(0)
    assert member.drops == 1
