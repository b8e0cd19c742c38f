"""Truncation in an elected group: confirmed messages stay, unconfirmed ones can be removed, before and after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.store.errors import StoreError
from firearrow.store.filesystem import RealDisk, RealLock
from firearrow.store.message_store import MessageStore
from firearrow.store.settings import StoreSettings

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
NOW = 1_800_000_000_000
SEGMENT = 8192


class KillableDisk(RealDisk):
    """A disk whose locks a test can release."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[RealLock] = []

    def lock(self, path: str) -> RealLock:
        self.locks.append(super().lock(path))
        return self.locks[-1]


def member(root: Path, *, segment: int = SEGMENT) -> MessageStore:
    settings = StoreSettings(
        store_path_root_dir=str(root), mapped_file_size_commit_log=segment, max_hash_slot_num=100, max_index_num=400
    )
    store = MessageStore(settings, disk=KillableDisk(), store_host=HOST, now_ms=lambda: NOW, elected=True)
    store.open()
    return store


def add(store: MessageStore, *bodies: bytes, queue_id: int = 0) -> int:
    """Write one group and return its end."""
    for body in bodies:
        queue = store.queue("T", queue_id)
        raw = b"KEYS\x01%b\x02" % body[:8]
        store.append(queue, body, raw, 0, flag=0, sys_flag=0, born_ms=NOW, born_host=HOST, store_ms=NOW)
    store.write_out()
    store.flush()
    return store.max_offset


def bodies(store: MessageStore, queue_id: int = 0) -> list[bytes]:
    queue = store.queue("T", queue_id)
    found = []
    for offset in range(queue.min_offset, queue.max_offset):
        entry = queue.entry(offset)
        assert entry is not None
        record = store.read_record(entry[0])
        assert record is not None
        start = 88
        found.append(record[start : start + int.from_bytes(record[84:88], "big")])
    return found


def release_lock(store: MessageStore) -> None:
    """Release the lock of a store that is not closed, as the end of its process does."""
    assert isinstance(store.disk, KillableDisk)
    store.disk.locks.pop().release()


def crash(store: MessageStore) -> None:
    """End the process: the lock is released, nothing else happens."""
    store.tick(NOW + 60_000)  # the mark is written several times a second
    release_lock(store)


def test_truncation_removes_unconfirmed_messages_and_their_queue_offsets(tmp_path: Path) -> None:
    store = member(tmp_path)
    store.confirm(add(store, b"a", b"b"))
    kept = add(store, b"c")
    add(store, b"d", b"e")
    store.replica.truncate(kept)
    assert store.max_offset == kept
    assert store.queue("T", 0).next_offset == 3
    store.confirm(add(store, b"D"))
    assert bodies(store) == [b"a", b"b", b"c", b"D"]
    assert store.query("T", "d", 9, 0, NOW * 2).records == []
    store.close()


def test_truncation_within_a_group_keeps_earlier_messages(tmp_path: Path) -> None:
    store = member(tmp_path)
    start = store.max_offset
    end = add(store, b"a", b"b", b"c")
    one = (end - start) // 3
    store.replica.truncate(start + 2 * one)
    store.replica.stop_copying()
    store.confirm(add(store, b"C"))
    assert bodies(store) == [b"a", b"b", b"C"]
    store.close()


def test_truncation_discards_pending_messages(tmp_path: Path) -> None:
    store = member(tmp_path)
    end = add(store, b"a")
    store.append(store.queue("T", 0), b"b", b"", 0, flag=0, sys_flag=0, born_ms=NOW, born_host=HOST, store_ms=NOW)
    store.replica.truncate(end)
    assert store.appended_offset == end
    assert store.queue("T", 0).next_offset == 1
    store.close()


def test_truncation_across_segments_saves_the_removed_bytes(tmp_path: Path) -> None:
    store = member(tmp_path)
    store.confirm(kept := add(store, b"a"))
    for number in range(12):
        add(store, b"%d" % number * 1500)
    assert len(list((tmp_path / "commitlog").iterdir())) > 1
    store.replica.truncate(kept)
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
    saved = b"".join(path.read_bytes() for path in (tmp_path / "commitlog_cut").iterdir())
    assert b"7" * 1500 in saved
    for number in range(12):
        store.confirm(add(store, b"x%d" % number * 700))
    assert bodies(store) == [b"a", *(b"x%d" % number * 700 for number in range(12))]
    store.close()


def test_confirmed_messages_cannot_be_truncated(tmp_path: Path) -> None:
    store = member(tmp_path)
    end = add(store, b"a", b"b")
    store.confirm(end)
    with pytest.raises(StoreError, match="confirmed up to"):
        store.replica.truncate(0)
    assert bodies(store) == [b"a", b"b"]
    store.close()


@pytest.mark.parametrize("how", ["close", "crash"])
def test_unconfirmed_messages_stay_unconfirmed_after_a_restart(tmp_path: Path, how: str) -> None:
    store = member(tmp_path)
    confirmed = add(store, b"a", b"b")
    store.confirm(confirmed)
    end = add(store, b"c")
    store.close() if how == "close" else crash(store)
    again = member(tmp_path)
    assert (again.confirm_offset, again.max_offset, again.lost) == (confirmed, end, False)
    assert bodies(again) == [b"a", b"b"]
    again.confirm(end)
    assert bodies(again) == [b"a", b"b", b"c"]
    again.close()


def test_unconfirmed_messages_can_be_truncated_after_a_restart(tmp_path: Path) -> None:
    store = member(tmp_path)
    confirmed = add(store, b"a")
    store.confirm(confirmed)
    add(store, b"b", b"c")
    crash(store)
    again = member(tmp_path)
    again.replica.truncate(confirmed)
    again.replica.stop_copying()
    again.confirm(add(again, b"B"))
    again.close()
    last = member(tmp_path)
    assert (bodies(last), last.lost) == ([b"a", b"B"], False)
    last.close()


def test_damage_below_the_durable_end_is_a_loss_and_ends_the_log(tmp_path: Path) -> None:
    store = member(tmp_path)
    store.confirm(first := add(store, b"first"))
    store.confirm(add(store, b"second"))
    store.confirm(end := add(store, b"third"))
    crash(store)
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"second", b"secXnd", 1))
    (tmp_path / "queueTable").unlink(missing_ok=True)
    again = member(tmp_path)
    assert (again.lost, again.max_offset, bodies(again)) == (True, first, [b"first"])
    assert end > first
    crash(again)


def test_damage_found_later_is_located_at_the_next_opening(tmp_path: Path) -> None:
    store = member(tmp_path)
    store.confirm(first := add(store, b"first"))
    store.confirm(add(store, b"second"))
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"second", b"secXnd", 1))
    store = member(tmp_path)
    assert not store.lost  # a clean stop: nobody looked
    store.replica.mark_damaged()
    release_lock(store)
    again = member(tmp_path)
    assert (again.lost, again.max_offset) == (True, first)
    again.close()


def test_reset_moves_the_log_to_another_offset(tmp_path: Path) -> None:
    """The leader has deleted the log that would follow: queues take the numbering of the records."""
    leader, follower = member(tmp_path / "l"), member(tmp_path / "f")
    follower.confirm(add(follower, b"old", b"older"))
    for number in range(20):
        leader.confirm(add(leader, b"%d" % number * 700))
    data = leader.read_log(SEGMENT, SEGMENT)
    follower.replica.reset_to(SEGMENT)
    assert (follower.min_offset, follower.max_offset, follower.confirm_offset) == (SEGMENT, SEGMENT, SEGMENT)
    follower.replica.write_raw(data, SEGMENT)
    follower.replica.index_new_records()
    follower.confirm(follower.flush())
    queue, twin = follower.queue("T", 0), leader.queue("T", 0)
    entry = queue.entry(queue.max_offset - 1)
    assert entry == twin.entry(queue.max_offset - 1)
    assert queue.min_offset > 0
    follower.close()
    again = member(tmp_path / "f")
    assert (again.min_offset, again.lost) == (SEGMENT, False)
    assert again.queue("T", 0).max_offset == queue.max_offset
    again.close()
    leader.close()


def test_discarded_logs_are_moved_aside_and_the_newest_two_are_kept(tmp_path: Path) -> None:
    follower = member(tmp_path)
    for number in range(1, 4):
        follower.confirm(add(follower, b"discarded %d" % number))
        follower.replica.reset_to(number * SEGMENT)
        follower.replica.stop_copying()
        aside = sorted(tmp_path.glob("commitlog.discarded-*"))
        assert b"discarded %d" % number in b"".join(file.read_bytes() for file in aside[-1].iterdir())
    assert len(aside) == 2
    follower.replica.reset_to(9 * SEGMENT)  # an empty log leaves nothing behind
    assert sorted(tmp_path.glob("commitlog.discarded-*")) == aside
    follower.close()
