"""Waiting until a cluster has nothing left to do at the current time of its clock.

This is the case when
- no broker is storing or delivering anything;
- no bytes are in flight on a connection;
- slaves have, and show, what their masters show;
- producers have answered the transaction checks;
- push consumers have consumed everything. They are asked with the operator request 307, so the location and implementation of a
  consumer do not matter: none of its queues has cached messages, and each is consumed to its end or its pull is parked.

A slow participant (a listener that waits for the test, an orderly consumer before a message that always fails) is waited for
while something changes, and PATIENCE_S after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from firearrow.broker.server import Broker
from firearrow.broker.tables.clients import Client, ConsumerGroup
from firearrow.net.connection import Connection
from firearrow.net.in_process import MemoryListener
from firearrow.testing.nodes import BrokerNode
from firearrow.wire import fastjson
from firearrow.wire.bodies.client import ConsumerRunningInfo, QueueBody
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.headers.admin import GetConsumerRunningInfoRequestHeader

PATIENCE_S = 1.0
_ITERATIONS = 3  # of the event loop between two checks
_RETRY_S = 0.001
_CALL_TIMEOUT_MS = 1_000
_ACTIVELY = "CONSUME_ACTIVELY"  # pull consumers are not waited for

log = logging.getLogger("firearrow.testing")


async def settle(
    nodes: list[BrokerNode],
    listeners: Callable[[], list[MemoryListener]],
    lagging: Callable[[], tuple[object, ...] | None],
    *,
    patience_s: float = PATIENCE_S,
) -> bool:
    """Return False if work remains after the patience has run out."""
    loop = asyncio.get_running_loop()
    before: object = None
    changed_s = loop.time()
    while True:
        for broker in _running(nodes):
            broker.work()
        for _ in range(_ITERATIONS):
            await asyncio.sleep(0)
        what = _unfinished(nodes, listeners()) or lagging() or await _behind(nodes)
        if what is None:
            return True
        now_s = loop.time()
        if what != before:
            before, changed_s = what, now_s
        elif now_s - changed_s > patience_s:
            log.info("no longer waiting for %s", what)
            return False
        await asyncio.sleep(_RETRY_S if changed_s != now_s else 0)


def _running(nodes: list[BrokerNode]) -> list[Broker]:
    return [node.broker for node in nodes if node.broker is not None]


def _unfinished(nodes: list[BrokerNode], listeners: list[MemoryListener]) -> tuple[object, ...] | None:
    """Describe the pending work of brokers and connections. The value is equal while nothing changes."""
    for node in nodes:
        if node.broker is not None and node.broker.busy:
            return "broker", node.name, node.broker.context.store.appended_offset, node.broker.context.store.confirm_offset
        if node.broker is not None:
            transactions = node.broker.transactions
            if transactions.checks_answered < transactions.checks_sent:
                return "transactions", node.name, transactions.checks_sent, transactions.checks_answered
    in_flight = sum(transport.get_write_buffer_size() for listener in listeners for transport in listener.transports)
    return ("network", in_flight) if in_flight else None


async def _behind(nodes: list[BrokerNode]) -> tuple[object, ...] | None:
    """Describe the first push consumer with pending work."""
    for broker in _running(nodes):
        for group, member in list(_push_consumers(broker)):
            behind = await _queues_behind(broker, group, member)
            if behind:
                return "consumer", group.name, member.client_id, behind
    return None


def _push_consumers(broker: Broker) -> Iterator[tuple[ConsumerGroup, Client]]:
    for group in broker.context.clients.consumer_groups():
        if group.consume_type != _ACTIVELY:
            for member in group.members.values():
                yield group, member


async def _queues_behind(broker: Broker, group: ConsumerGroup, member: Client) -> tuple[object, ...]:
    header = GetConsumerRunningInfoRequestHeader(consumer_group=group.name, client_id=member.client_id)
    try:
        answer = await member.conn.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode(), timeout_ms=_CALL_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            return ()
        table = ConsumerRunningInfo.from_json(fastjson.loads(answer.body)).mq_table
    except (OSError, ProtocolError):
        return ()
    return tuple(
        (queue.topic, queue.queue_id, info.get("cachedMsgCount"), info.get("commitOffset"))
        for queue, info in table.items()
        if queue.broker_name == broker.settings.broker_name and not _consumed(broker, group.name, member.conn, queue, info)
    )


def _consumed(broker: Broker, group: str, conn: Connection, queue: QueueBody, info: dict[str, Any]) -> bool:
    if info.get("cachedMsgCount"):
        return False
    stored = broker.context.store.find_queue(queue.topic, queue.queue_id)
    if stored is None or info.get("commitOffset", -1) >= stored.max_offset:
        return True
    # Its pull is parked: no stored message matches its subscription.
    return broker.long_polling.has_parked(stored, conn, group)
