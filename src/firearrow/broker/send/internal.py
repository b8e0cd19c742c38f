"""Messages that the broker itself stores: delayed ones when they are due, retries, dead letters, committed transactions, replies.

They take the same way as a client's: appended now, written at the end of the round, visible when they are durable. Nobody waits
for an answer; whoever stores such a message keeps its own state so that it can be stored again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from firearrow.broker.deferred.router import DeferralRouter, IncomingMessage, may_be_placed
from firearrow.broker.observability.stats import BrokerStats
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.record import Record

HOST_BITS = 0x30  # whether hosts are IPv6: the store sets them from the hosts themselves


@dataclass(slots=True)
class InnerMessage:
    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_offset: int = 0

    @classmethod
    def of(cls, record: Record, topic: str, queue_id: int) -> InnerMessage:
        """What the record holds, bound for another queue."""
        return cls(
            topic=topic,
            queue_id=queue_id,
            body=record.body,
            properties=properties.ended(record.properties),
            flag=record.flag,
            sys_flag=record.sys_flag & ~HOST_BITS,
            born_ms=record.born_timestamp,
            born_host=record.born_host,
            reconsume_times=record.reconsume_times,
        )


class Stored(NamedTuple):
    queue_offset: int
    physical_offset: int


class InternalWriter:
    """`open_round` makes sure that what is appended now gets written soon."""

    def __init__(self, store: MessageStore, stats: BrokerStats, placing: DeferralRouter, open_round: Callable[[], None]) -> None:
        self._store = store
        self._stats = stats
        self._placing = placing
        self._open_round = open_round

    def put(self, message: InnerMessage, now_ms: int) -> Stored:
        """Stores a message; one that has a delay waits for it first."""
        if may_be_placed(message.properties):
            arrival = IncomingMessage(
                message.topic,
                message.queue_id,
                message.properties,
                message.sys_flag,
                message.reconsume_times,
                (properties.find(message.properties, b"UNIQ_KEY") or b"").decode(),
                inner=True,
            )
            placement = self._placing.place(arrival, now_ms)
            if placement is not None:
                message.topic, message.queue_id = placement.topic, placement.queue_id
                message.properties, message.sys_flag = placement.properties, placement.sys_flag
                return self._append(message, placement.tags_code, now_ms)
        return self.deliver(message, now_ms)

    def deliver(self, message: InnerMessage, now_ms: int) -> Stored:
        """Stores a message right where it says, whatever its properties ask for."""
        return self._append(message, tags_code_of(message.properties), now_ms)

    def release(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        raw: bytes,
        code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        now_ms: int,
    ) -> None:
        """`deliver` for what is released by the thousand, delayed messages and transactions, without the object in between."""
        queue = self._store.queue(topic, queue_id)
        self._store.append(
            queue,
            body,
            raw,
            code,
            flag=flag,
            sys_flag=sys_flag,
            born_ms=born_ms,
            born_host=born_host,
            store_ms=now_ms,
            reconsume_times=reconsume_times,
            prepared_offset=prepared_offset,
        )
        self._stats.topic_put(topic).add(1, queue.base_size + len(body) + len(raw))
        self._open_round()

    def _append(self, message: InnerMessage, code: int, now_ms: int) -> Stored:
        queue = self._store.queue(message.topic, message.queue_id)
        queue_offset = queue.next_offset
        offset = self._store.append(
            queue,
            message.body,
            message.properties,
            code,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_ms=message.born_ms,
            born_host=message.born_host,
            store_ms=now_ms,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
        )
        self._stats.topic_put(message.topic).add(1, queue.base_size + len(message.body) + len(message.properties))
        self._open_round()
        return Stored(queue_offset, offset)
