"""Queue locks."""

from __future__ import annotations

import json

import pytest

from firearrow.broker.requests.responses import Refused
from firearrow.broker.tables.queue_locks import QueueLocks
from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.broker.kit import Kit

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


def test_locks_beyond_the_limit_are_rejected_and_held_ones_are_renewed() -> None:
    locks = QueueLocks(max_locks=lambda: 1)
    assert locks.lock("G", "a", [Q0], 0) == [Q0]
    with pytest.raises(Refused, match="maxQueueLocks is 1"):
        locks.lock("H", "a", [Q1], 0)
    assert locks.lock("G", "a", [Q0], 1) == [Q0]
    locks.unlock("G", "a", [Q0])
    assert locks.lock("H", "a", [Q1], 2) == [Q1]
    locks.tick(100_000)
    assert locks.count == 0


@pytest.mark.parametrize(
    ("count", "name", "problem"),
    [(9_000, "T", "8192 is the maximum"), (1, "T" * 300, "longer than 255"), (30_000, "T", "elements")],
)
def test_requests_that_lock_too_much_are_rejected(kit: Kit, count: int, name: str, problem: str) -> None:
    queues = [{"topic": name, "brokerName": "b", "queueId": number} for number in range(count)]
    body = json.dumps({"consumerGroup": "G", "clientId": "c", "mqSet": queues}, separators=(",", ":"))
    answer = kit.ask(RequestCode.LOCK_BATCH_MQ, body=body.encode()[: 1024 * 1024] if count > 20_000 else body.encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert problem in (answer.remark or "")
