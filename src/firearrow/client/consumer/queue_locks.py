"""Queue locks at the brokers, which give one member of a group exclusive use of a queue (41, 42).

A lock expires after 60 s at the broker. It is renewed every 20 s and no longer trusted here after 30 s. Orderly consumption
starts with the lock and ends with its release.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer.queue_offsets import master_address
from firearrow.client.errors import FirearrowError
from firearrow.client.message import MessageQueue
from firearrow.wire import fastjson
from firearrow.wire.bodies.client import LockBatchRequestBody, LockBatchResponseBody, QueueBody, UnlockBatchRequestBody
from firearrow.wire.codes import RequestCode
from firearrow.wire.errors import ProtocolError

RENEW_MS: Final = 20_000
TIMEOUT_MS: Final = 1_000

log = logging.getLogger("firearrow.client")


class QueueLockClient:
    """Locks and unlocks queues for one group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Acquire or renew locks. Return (the locked queues, the queues of brokers that did not respond)."""
        ours: set[MessageQueue] = set()
        unknown: set[MessageQueue] = set()
        for wanted in _by_broker(queues):
            body = LockBatchRequestBody(self._group, self._instance.client_id, [_on_wire(queue) for queue in wanted])
            try:
                address = await master_address(self._instance, wanted[0])
                text = fastjson.dumps(body.to_json())
                answer = await self._instance.check(address, RequestCode.LOCK_BATCH_MQ, text, timeout_ms=TIMEOUT_MS)
                locked = LockBatchResponseBody.from_json(fastjson.loads(answer.body)).lock_ok_mq_set
            except (FirearrowError, ProtocolError) as error:
                log.warning("group %s: locking queues of %s failed: %s", self._group, wanted[0].broker_name, error)
                unknown.update(wanted)
            else:
                ours.update(MessageQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in locked)
        return ours, unknown

    async def unlock(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> None:
        for mine in _by_broker(queues):
            body = UnlockBatchRequestBody(self._group, self._instance.client_id, [_on_wire(queue) for queue in mine])
            text = fastjson.dumps(body.to_json())
            try:
                address = await master_address(self._instance, mine[0])
                if confirmed:
                    await self._instance.check(address, RequestCode.UNLOCK_BATCH_MQ, text, timeout_ms=TIMEOUT_MS)
                else:
                    await self._instance.oneway(address, RequestCode.UNLOCK_BATCH_MQ, text)
            except FirearrowError as error:
                log.warning(
                    "group %s: unlocking queues of %s failed: %s",
                    self._group,
                    mine[0].broker_name,
                    error,
                )


def _by_broker(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    brokers: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        brokers.setdefault(queue.broker_name, []).append(queue)
    return list(brokers.values())


def _on_wire(queue: MessageQueue) -> QueueBody:
    return QueueBody(queue.topic, queue.broker_name, queue.queue_id)
