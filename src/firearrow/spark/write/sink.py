"""Rows are sent: which queue a row goes to, and how it is stored once. `shape.py` has the columns, `messages.py` the messages.

**Queue.** The one named; else by the hash of `shardingKey`, as Java's clients choose; else runs of rows in turn.

**Once.** A row has a number: of the micro-batch and its place in the partition. Our broker stores each number of a producer once
for each queue, and the producer is the query and the partition, so that a task that is tried again, and a batch that is replayed
after a restart, store nothing twice (`broker/dedup.py`). The broker remembers the last 256 numbers of a queue and refuses older
ones. Rows of a queue are sent in order, at most 200 at a time and the next after the answer: a number it refuses as too old was
stored, and so were all that were sent with it. This needs rows that come again in the same order, and the same number of queues.
An Apache broker takes the same messages at least once; `__SPARK_ID` is then what tells a repeated one.
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

RUN: Final = 200  # rows of a queue under way: fewer than the numbers a broker remembers
GROUP: Final = "SPARK_WRITER"
_BUSY: Final = frozenset((ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE))
_STORED: Final = frozenset((
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
))  # fmt: skip
_MADE_ROWS, _MADE_BYTES = 20 * RUN, 4 << 20  # made into messages at once: what stays in the processor's caches
_WORTH_A_SORT: Final = 50  # neighbours that go to one queue, on average; below that, messages are put in the order of the queues


@dataclass(slots=True)
class _Run:
    """Messages of one queue that wait to be sent together."""

    pieces: list[memoryview] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    delayed: bool = False


class Sink:
    """Writes the rows of one task. `write` returns when every row is stored."""

    def __init__(self, servers: ClusterClient, options: DataSourceOptions, shape: InputColumns, origin: Origin) -> None:
        self._servers = servers
        self._shape = shape
        self._origin = origin
        self._maker = MessageBuilder(shape, origin, numbered=options["idempotent"] != "false")
        self._run_bytes = options["sendBatchBytes"]
        self._retries = options["retries"]
        self._timeout_ms = options["sendTimeoutMs"]
        self._most_runs = options["maxInFlight"]
        self._creation = (options["createTopic"], options["queues"])
        self._queues: list[Queue] = []
        self._of_topic: dict[str, range] = {}  # its places in the list of queues
        self._waiting: dict[Queue, _Run] = {}
        self._sending: dict[Queue, Any] = {}  # the run under way of each queue
        self.rows = 0
        self.bytes = 0

    def write(self, batches: Iterable[Any]) -> None:
        try:
            for rows in batches:
                for part in _parts(rows):
                    self._add_all(part)
            for queue in list(self._waiting):
                self._flush(queue)
            for sending in self._sending.values():
                sending.result()
        except BaseException:
            for sending in self._sending.values():
                sending.cancel()
            raise

    # ---- queues

    def _places(self, rows: Any) -> Ints:
        """For each row the place of its queue in the list."""
        if self._shape.topic is not None:
            return self._places_in(self._shape.topic, rows, np.arange(rows.num_rows))
        topics, codes = _encoded(self._shape.column(rows, "topic"))
        places = np.empty(rows.num_rows, np.int64)
        for code, topic in (*enumerate(topics), (-1, None)):
            mine = np.flatnonzero(codes == code)
            if len(mine) and not topic:
                raise SparkOptionError(f"row {self.rows + int(mine[0])} of partition {self._origin.partition} has no topic")
            if topic:
                places[mine] = self._places_in(topic, rows, mine)
        return places

    def _places_in(self, topic: str, rows: Any, mine: Ints) -> Ints:
        """The same of some rows, which go to one topic."""
        of_topic = self._known(topic)
        places = (self._origin.partition + (self.rows + mine) // RUN) % len(of_topic)
        keys = self._shape.column(rows, "shardingKey")
        if keys is not None:
            found, codes = _encoded(keys)
            by_key = np.array([*(by_sharding_key(len(of_topic), key) if key else -1 for key in found), -1])[codes[mine]]
            places = np.where(by_key < 0, places, by_key)
        places += of_topic.start
        if "queueId" in self._shape.places:
            self._take_named(topic, rows, mine, places)
        return places

    def _take_named(self, topic: str, rows: Any, mine: Ints, places: Ints) -> None:
        """Puts in the queues that rows name themselves."""
        known = {self._queues[place]: place for place in self._known(topic)}
        brokers, numbers = (self._shape.column(rows, name).take(mine).to_pylist() for name in ("brokerName", "queueId"))
        for at, (broker, number) in enumerate(zip(brokers, numbers, strict=True)):
            if broker is not None and number is not None:
                place = known.get(Queue(topic, broker, number))
                if place is None:
                    raise SparkOptionError(f"{topic} has no queue {number} on {broker} that can be written")
                places[at] = place

    def _known(self, topic: str) -> range:
        found = self._of_topic.get(topic)
        if found is None:
            check_topic_name(topic)
            queues = self._servers.write_queues(topic, *self._creation)
            found = self._of_topic[topic] = range(len(self._queues), len(self._queues) + len(queues))
            self._queues += queues
        return found

    # ---- runs

    def _add_all(self, rows: Any) -> None:
        places = self._places(rows)
        messages = self._maker.messages(rows, self.rows)
        changes = np.flatnonzero(np.diff(places)) + 1
        if len(changes) * _WORTH_A_SORT > len(places):
            order = np.argsort(places, kind="stable")  # rows of a queue stay in their order
            places, messages = places[order], messages.ordered(order)
            changes = np.flatnonzero(np.diff(places)) + 1
        self.rows += len(places)
        self.bytes += messages.body_bytes
        for first, end in pairwise((0, *changes.tolist(), len(places))):
            self._add(self._queues[places[first]], messages, first, end)

    def _add(self, queue: Queue, messages: Messages, first: int, end: int) -> None:
        """Messages that go to one queue; each time enough of them wait, they are sent."""
        data, bounds = messages.data, messages.bounds
        while first < end:
            run = self._waiting.setdefault(queue, _Run())
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
        """Sends what waits for a queue, after what is under way there has been answered."""
        run = self._waiting.pop(queue)
        before = self._sending.pop(queue, None)
        if before is not None:
            before.result()
        while len(self._sending) >= self._most_runs:
            oldest = next(iter(self._sending))
            self._sending.pop(oldest).result()
        self._sending[queue] = self._servers.submit(lambda: self._send_run(queue, run))

    async def _send_run(self, queue: Queue, run: _Run) -> None:
        body = b"".join(run.pieces)
        if run.rows > 1 and not run.delayed:
            await self._send(queue, body, "WAIT\x01true\x02", 0, single=False)
            return
        await asyncio.gather(  # brokers take no delayed messages in batches
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
            answer = await self._servers.call_async(queue, header, self._timeout_ms, body)
            if answer.code in _STORED or is_stored_before(answer.code, answer.remark):
                return
            if answer.code not in _BUSY or attempt == self._retries:
                raise BrokerError(answer.code, answer.remark, f"{queue.topic} on {queue.broker_name}")
            await asyncio.sleep(0.1 * 2**attempt)


def is_stored_before(code: int, remark: str | None) -> bool:
    """The broker says that a number is older than those it remembers. See above for why that means: it has been stored."""
    return code == ResponseCode.MESSAGE_ILLEGAL and "__PRODUCER_SEQ" in (remark or "") and "is older than" in (remark or "")


def _parts(rows: Any) -> Iterator[Any]:
    """The rows in portions."""
    step = max(1, min(_MADE_ROWS, _MADE_BYTES * rows.num_rows // max(1, rows.nbytes)))
    return (rows.slice(at, step) for at in range(0, rows.num_rows, step))


def _encoded(column: Any) -> tuple[list[str], Ints]:
    """The texts that occur, and which one each row has; -1 for a null."""
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
