"""Sending of rows: choice of the queue, sequence numbers and deduplication.

**Queue.** The named queue, else by the hash of `shardingKey` as in Java's clients, else runs of rows in rotation.

**Deduplication.** A row has a sequence number: its micro-batch and its index in the partition (`message_builder.Origin`). The
producer is the query and the partition. Firearrow's broker stores each number of a producer once per queue (`broker/dedup`), so a
retried task and a batch replayed after a restart store nothing twice. The broker remembers the last 256 numbers of a queue and
rejects older ones. Rows of a queue are sent in order, at most 200 at a time, the next after the reply; a number rejected as too
old was therefore stored, together with all numbers of its request. This requires that rows are repeated in the same order and
that the number of queues does not change. An Apache broker stores the same messages at least once; `__SPARK_ID` identifies
repeated ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from firearrow.client.errors import BrokerError
from firearrow.client.producer.routing import by_sharding_key
from firearrow.clock import wall_ms
from firearrow.spark.cluster import ClusterClient
from firearrow.spark.decode.slices import Ints
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.read.offsets import Queue
from firearrow.spark.write.input_columns import InputColumns, check_topic_name
from firearrow.spark.write.message_builder import MessageBuilder, Messages, Origin
from firearrow.wire import batch
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.client import SendBatchMessageRequestHeader, SendMessageRequestHeaderV2
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC

RUN: Final = 200  # rows of a queue in flight; fewer than the numbers a broker remembers
GROUP: Final = "SPARK_WRITER"
_BUSY: Final = frozenset((ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE))
_STORED: Final = frozenset((
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
))  # fmt: skip
_BUILD_ROWS, _BUILD_BYTES = 20 * RUN, 4 << 20  # converted together; fits into the processor's caches
_SORT_BELOW: Final = 50  # average run of rows for one queue below which messages are sorted by queue


@dataclass(slots=True)
class _Run:
    """Pending messages of one queue, sent in one request."""

    pieces: list[memoryview] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    delayed: bool = False


class Sink:
    """Writer of the rows of one task. `write` returns when every row is stored."""

    def __init__(self, client: ClusterClient, options: DataSourceOptions, columns: InputColumns, origin: Origin) -> None:
        self._client = client
        self._columns = columns
        self._origin = origin
        self._builder = MessageBuilder(columns, origin, numbered=options["idempotent"] != "false")
        self._run_bytes = options["sendBatchBytes"]
        self._retries = options["retries"]
        self._timeout_ms = options["sendTimeoutMs"]
        self._max_in_flight = options["maxInFlight"]
        self._creation = (options["createTopic"], options["queues"])
        self._queues: list[Queue] = []
        self._topic_queues: dict[str, range] = {}  # indexes into the list of queues
        self._pending: dict[Queue, _Run] = {}
        self._in_flight: dict[Queue, Any] = {}  # the request of each queue
        self.rows = 0
        self.bytes = 0

    def write(self, batches: Iterable[Any]) -> None:
        try:
            for rows in batches:
                for part in _slices(rows):
                    self._add_batch(part)
            for queue in list(self._pending):
                self._flush(queue)
            for request in self._in_flight.values():
                request.result()
        except BaseException:
            for request in self._in_flight.values():
                request.cancel()
            raise

    def _queue_indexes(self, rows: Any) -> Ints:
        """Return the index of each row's queue."""
        if self._columns.topic is not None:
            return self._indexes_in_topic(self._columns.topic, rows, np.arange(rows.num_rows))
        topics, codes = _encoded(self._columns.column(rows, "topic"))
        indexes = np.empty(rows.num_rows, np.int64)
        for code, topic in (*enumerate(topics), (-1, None)):
            selected = np.flatnonzero(codes == code)
            if len(selected) and not topic:
                raise SparkOptionError(f"row {self.rows + int(selected[0])} of partition {self._origin.partition} has no topic")
            if topic:
                indexes[selected] = self._indexes_in_topic(topic, rows, selected)
        return indexes

    def _indexes_in_topic(self, topic: str, rows: Any, selected: Ints) -> Ints:
        """Return the queue indexes of rows that go to one topic."""
        topic_queues = self._queues_of(topic)
        indexes = (self._origin.partition + (self.rows + selected) // RUN) % len(topic_queues)
        keys = self._columns.column(rows, "shardingKey")
        if keys is not None:
            found, codes = _encoded(keys)
            by_key = np.array([*(by_sharding_key(len(topic_queues), key) if key else -1 for key in found), -1])[codes[selected]]
            indexes = np.where(by_key < 0, indexes, by_key)
        indexes += topic_queues.start
        if "queueId" in self._columns.indexes:
            self._apply_named_queues(topic, rows, selected, indexes)
        return indexes

    def _apply_named_queues(self, topic: str, rows: Any, selected: Ints, indexes: Ints) -> None:
        """Overwrite the queues of rows that name one."""
        known = {self._queues[index]: index for index in self._queues_of(topic)}
        brokers, numbers = (self._columns.column(rows, name).take(selected).to_pylist() for name in ("brokerName", "queueId"))
        for at, (broker, number) in enumerate(zip(brokers, numbers, strict=True)):
            if broker is not None and number is not None:
                index = known.get(Queue(topic, broker, number))
                if index is None:
                    raise SparkOptionError(f"{topic} has no writable queue {number} on {broker}")
                indexes[at] = index

    def _queues_of(self, topic: str) -> range:
        found = self._topic_queues.get(topic)
        if found is None:
            check_topic_name(topic)
            queues = self._client.write_queues(topic, *self._creation)
            found = self._topic_queues[topic] = range(len(self._queues), len(self._queues) + len(queues))
            self._queues += queues
        return found

    def _add_batch(self, rows: Any) -> None:
        indexes = self._queue_indexes(rows)
        messages = self._builder.messages(rows, self.rows)
        changes = np.flatnonzero(np.diff(indexes)) + 1
        if len(changes) * _SORT_BELOW > len(indexes):
            order = np.argsort(indexes, kind="stable")  # stable: keeps the order of rows of a queue
            indexes, messages = indexes[order], messages.take(order)
            changes = np.flatnonzero(np.diff(indexes)) + 1
        self.rows += len(indexes)
        self.bytes += messages.body_bytes
        for first, end in pairwise((0, *changes.tolist(), len(indexes))):
            self._add(self._queues[indexes[first]], messages, first, end)

    def _add(self, queue: Queue, messages: Messages, first: int, end: int) -> None:
        """Add messages to the run of a queue, and send the run whenever it is full."""
        data, bounds = messages.data, messages.bounds
        while first < end:
            run = self._pending.setdefault(queue, _Run())
            fitting = int(np.searchsorted(bounds, bounds[first] + self._run_bytes - run.size, "right")) - 1 - first
            if fitting <= 0 and run.rows:
                self._flush(queue)
                continue
            last = min(end, first + RUN - run.rows, first + max(1, fitting))
            piece = data[bounds[first] : bounds[last]]
            run.pieces.append(piece)
            run.rows += last - first
            run.size += len(piece)
            run.delayed |= messages.delayed is not None and bool(messages.delayed[first:last].any())
            first = last
            if run.rows == RUN:
                self._flush(queue)

    def _flush(self, queue: Queue) -> None:
        """Send the pending run of a queue, after the reply to its previous request."""
        run = self._pending.pop(queue)
        previous = self._in_flight.pop(queue, None)
        if previous is not None:
            previous.result()
        while len(self._in_flight) >= self._max_in_flight:
            oldest = next(iter(self._in_flight))
            self._in_flight.pop(oldest).result()
        self._in_flight[queue] = self._client.submit(self.send_run(queue, run))

    async def send_run(self, queue: Queue, run: _Run) -> None:
        body = b"".join(run.pieces)
        if run.rows > 1 and not run.delayed:
            await self._send(queue, body, "WAIT\x01true\x02", 0, single=False)
            return
        await asyncio.gather(  # brokers reject delayed messages in batches
            *(self._send(queue, text, raw.decode(), flag, single=True) for flag, text, raw in batch.split(body))
        )

    async def _send(self, queue: Queue, body: bytes, properties: str, flag: int, *, single: bool) -> None:
        header_class = SendMessageRequestHeaderV2 if single else SendBatchMessageRequestHeader
        header = header_class(
            producer_group=GROUP, topic=queue.topic, default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC, default_topic_queue_nums=4,
            queue_id=queue.queue_id, sys_flag=0, born_timestamp=wall_ms(), flag=flag, properties=properties, batch=not single,
            bname=queue.broker_name,
        )  # fmt: skip
        for attempt in range(self._retries + 1):
            reply = await self._client.call_async(queue, header, self._timeout_ms, body)
            if reply.code in _STORED or is_already_stored(reply.code, reply.remark):
                return
            if reply.code not in _BUSY or attempt == self._retries:
                raise BrokerError(reply.code, reply.remark, f"{queue.topic} on {queue.broker_name}")
            await asyncio.sleep(0.1 * 2**attempt)


def is_already_stored(code: int, remark: str | None) -> bool:
    """Return True if the broker rejects a number as too old, which implies that it is stored (see the module docstring)."""
    return code == ResponseCode.MESSAGE_ILLEGAL and "__PRODUCER_SEQ" in (remark or "") and "is older than" in (remark or "")


def _slices(rows: Any) -> Iterator[Any]:
    """Yield slices of a batch that fit into the caches."""
    step = max(1, min(_BUILD_ROWS, _BUILD_BYTES * rows.num_rows // max(1, rows.nbytes)))
    return (rows.slice(at, step) for at in range(0, rows.num_rows, step))


def _encoded(column: Any) -> tuple[list[str], Ints]:
    """Dictionary-encode a column: the distinct texts and each row's index into them, -1 for null."""
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
