"""Queue locks."""

from __future__ import annotations

from firearrow.broker.tables.queue_locks import QueueLocks
from firearrow.wire.bodies.client import QueueBody

Q0, Q1 = QueueBody("T", "b", 0), QueueBody("T", "b", 1)


def test_queue_is_held_by_the_first_client_until_unlocked() -> None:
    locks = QueueLocks()
    assert locks.lock("G", "a", [Q0, Q1], 0) == [Q0, Q1]
    assert locks.lock("G", "b", [Q0, Q1], 1) == []
    assert locks.lock("Other", "b", [Q0], 1) == [Q0]  # another group has its own locks
    locks.unlock("G", "b", [Q0])  # not its own
    assert locks.lock("G", "b", [Q0], 2) == []
    locks.unlock("G", "a", [Q0])
    assert locks.lock("G", "b", [Q0, Q1], 3) == [Q0]


def test_lock_expires_a_minute_after_its_last_renewal() -> None:
    locks = QueueLocks()
    locks.lock("G", "a", [Q0], 0)
    locks.lock("G", "a", [Q0], 50_000)
    assert locks.lock("G", "b", [Q0], 110_000) == []
    assert locks.any_held("G", 110_000)
    assert not locks.any_held("G", 110_001)
    assert locks.lock("G", "b", [Q0], 110_001) == [Q0]
    assert locks.lock("G", "a", [Q0], 110_002) == []


def test_expired_locks_are_removed() -> None:
    locks = QueueLocks()
    locks.lock("G", "a", [Q0], 0)
    locks.tick(60_000)
    assert locks.any_held("G", 60_000)
    locks.tick(60_001)
    assert not locks.any_held("G", 60_000)  # removed, not only expired
