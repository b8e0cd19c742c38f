"""Queue locks of orderly consumers (41, 42).

A lock lasts 60 s from its last renewal. A client renews its locks every 20 s and trusts them for 30 s, so it has stopped using a
lock long before the lock expires here. Locking a held queue renews the lock. A queue is identified by topic, broker name and
queue id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused, done, json_answer, read_body
from firearrow.net.server import Connection
from firearrow.wire.bodies.client import LockBatchRequestBody, LockBatchResponseBody, QueueBody, UnlockBatchRequestBody
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command

LOCK_TTL_MS = 60_000
MAX_QUEUES_PER_REQUEST = 8_192  # each costs about 10 us
MAX_NAME = 255


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """`max_locks` returns the highest number of locks of all groups."""

    def __init__(self, ttl_ms: int = LOCK_TTL_MS, *, max_locks: Callable[[], int] = lambda: 100_000) -> None:
        self.count = 0
        self._ttl_ms = ttl_ms
        self._max_locks = max_locks
        self._locks: dict[str, dict[QueueBody, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[QueueBody], now_ms: int) -> list[QueueBody]:
        """Lock or renew the queues that are free or held by this client. Return those it holds now.

        Rejects the request if there are too many locks already. Those taken until then are kept.
        """
        locks = self._locks.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self.count >= self._max_locks():
                    if not locks:
                        del self._locks[group]
                    raise Refused(
                        ResponseCode.SYSTEM_BUSY,
                        f"{self.count} queues are locked, maxQueueLocks is {self._max_locks()}; unlock some, or raise the limit",
                    )
                locks[queue] = _Lock(client_id, now_ms)
                self.count += 1
            elif lock.client_id == client_id or self._expired(lock, now_ms):
                lock.client_id, lock.renewed_ms = client_id, now_ms
            else:
                continue
            held.append(queue)
        if not locks:
            del self._locks[group]
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueBody]) -> None:
        """Unlock the queues held by this client. Locks of other clients are kept."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self.count -= 1
        if not locks:
            del self._locks[group]

    def any_held(self, group: str, now_ms: int) -> bool:
        """Return whether any queue of the group is locked."""
        return any(not self._expired(lock, now_ms) for lock in self._locks.get(group, {}).values())

    def renew_all(self, now_ms: int) -> None:
        """Renew all locks after a clock jump: their holders would have renewed them in the meantime."""
        for locks in self._locks.values():
            for lock in locks.values():
                lock.renewed_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Remove expired locks."""
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if self._expired(lock, now_ms)]:
                del locks[queue]
                self.count -= 1
            if not locks:
                del self._locks[group]

    def _expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._ttl_ms


def _check(body: LockBatchRequestBody) -> None:
    if len(body.mq_set) > MAX_QUEUES_PER_REQUEST:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"the request locks {len(body.mq_set)} queues; {MAX_QUEUES_PER_REQUEST} is the maximum, use several requests",
        )
    texts = {body.consumer_group, body.client_id, *(text for queue in body.mq_set for text in (queue.topic, queue.broker_name))}
    if any(len(text) > MAX_NAME for text in texts):
        raise Refused(ResponseCode.INVALID_PARAMETER, f"a name of the request is longer than {MAX_NAME} characters")


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    locks = broker.locks

    def lock_batch(conn: Connection, request: Command, now_ms: int) -> bytes:
        body = read_body(request, LockBatchRequestBody.from_json)
        _check(body)
        held = locks.lock(body.consumer_group, body.client_id, body.mq_set, now_ms)
        return json_answer(request, LockBatchResponseBody(lock_ok_mq_set=held))

    def unlock_batch(conn: Connection, request: Command, now_ms: int) -> bytes:
        body = read_body(request, UnlockBatchRequestBody.from_json)
        locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return done(request)

    return {RequestCode.LOCK_BATCH_MQ: lock_batch, RequestCode.UNLOCK_BATCH_MQ: unlock_batch}
