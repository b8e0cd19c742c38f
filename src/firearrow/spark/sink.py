"""Rows become messages: which columns are taken, which queue a row goes to, and how it is sent once.

**Columns.** `body` (binary or string) is needed; `topic`, `keys`, `tags`, `properties`, `shardingKey`, `queueId` with
`brokerName`, `delayLevel`, `deliverTimeMs` and `idempotencyKey` are taken if they are there. Columns of the source that say where
a message was are let pass, so that a topic can be written as it was read; a frame with `queueOffset` is such a one, and its
`queueId` and `brokerName` are where its rows come from, not where they go to. Any other column is an error.

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
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from firearrow.client import unique_keys
from firearrow.client.errors import BrokerError
from firearrow.client.queue_choice import by_sharding_key
from firearrow.client.validate import RESERVED, check_sendable_topic
from firearrow.spark.cluster import Cluster
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.offsets import Queue
from firearrow.spark.options import Options
from firearrow.wire import batch
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.properties import MAX_BYTES

SPARK_ID: Final = "__SPARK_ID"
RUN: Final = 200  # rows of a queue under way: fewer than the numbers a broker remembers
GROUP: Final = "SPARK_WRITER"
_BUSY: Final = frozenset((ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE))
_STORED: Final = frozenset((
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
))  # fmt: skip
_MAX_ROWS: Final = 1 << 32  # of a partition in a micro-batch

TAKEN: Final = {
    "body": ("binary", "string"), "topic": ("string",), "keys": ("string",), "tags": ("string",),
    "properties": ("map<string,string>",), "queueId": ("int",), "brokerName": ("string",), "shardingKey": ("string",),
    "delayLevel": ("int",), "deliverTimeMs": ("bigint",), "idempotencyKey": ("string",),
}  # fmt: skip
_OF_THE_SOURCE: Final = frozenset((
    "queueOffset", "msgId", "offsetMsgId", "flag", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost",
    "reconsumeTimes", "preparedTransactionOffset", "commitLogOffset", "storeSize", "bodyCRC",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """Which column of the frame is which. Plain data: it travels to executors."""

    places: dict[str, int]
    topic: str | None

    def column(self, columns: Sequence[Any], name: str) -> list[Any] | None:
        place = self.places.get(name)
        return None if place is None else columns[place].to_pylist()


def shape_of(fields: Sequence[tuple[str, str]], topic: str | None) -> Shape:
    """SparkOptionError for a column that nobody knows, one of a wrong type, or none that is needed."""
    known = {name.lower(): name for name in (*TAKEN, *_OF_THE_SOURCE)}
    places: dict[str, int] = {}
    for place, (given, kind) in enumerate(fields):
        name = known.get(given.lower())
        if name is None:
            near = get_close_matches(given.lower(), known, 1)
            help_ = f"did you mean {known[near[0]]}?" if near else f"expected some of {', '.join(TAKEN)}"
            raise SparkOptionError(f"unknown column {given!r}; {help_}")
        if name in TAKEN and kind not in TAKEN[name]:
            raise SparkOptionError(f"the column {name} has type {kind}, expected {' or '.join(TAKEN[name])}")
        places[name] = place
    if "body" not in places:
        raise SparkOptionError("there is no column body: what is to be sent?")
    from_source = "queueOffset" in places
    for name in _OF_THE_SOURCE | ({"queueId", "brokerName"} if from_source else set()):
        places.pop(name, None)
    if topic is not None:
        check_topic_name(topic)
        places.pop("topic", None)
    elif "topic" not in places:
        raise SparkOptionError("where to? give the option topic, or a column topic")
    if ("queueId" in places) != ("brokerName" in places):
        raise SparkOptionError("queueId and brokerName name a queue together: one of the columns is missing")
    return Shape(places, topic)


def check_topic_name(topic: str) -> None:
    try:
        check_sendable_topic(topic)
    except ValueError as error:
        raise SparkOptionError(f"option topic is {topic!r}: {error}") from None


class Origin(NamedTuple):
    """Who writes, in the sense of the broker: a query (or job), one of its partitions, and the number of its micro-batch."""

    writer: str
    batch_id: int
    partition: int

    @property
    def producer_id(self) -> str:
        return f"{self.writer}/{self.partition}"

    def number(self, row: int) -> int:
        return self.batch_id * _MAX_ROWS + row

    def spark_id(self, row: int | str) -> str:
        return f"{self.writer}/{self.batch_id}/{self.partition}/{row}"


def new_writer() -> str:
    return uuid.uuid4().hex


class Row(NamedTuple):
    body: bytes
    properties: bytes
    delayed: bool


class Sink:
    """Writes the rows of one task. `write` returns when every row is stored."""

    def __init__(self, servers: Cluster, options: Options, shape: Shape, origin: Origin) -> None:
        self._servers = servers
        self._shape = shape
        self._origin = origin
        self._numbered = options["idempotent"] != "false"
        self._mark = origin.spark_id("")
        self._number_head = f"__PRODUCER_ID\x01{origin.producer_id}\x02__PRODUCER_SEQ\x01"
        self._first_number = origin.number(0)
        self._run_bytes = options["sendBatchBytes"]
        self._retries = options["retries"]
        self._timeout_ms = options["sendTimeoutMs"]
        self._most_runs = options["maxInFlight"]
        self._next_id = unique_keys.maker(unique_keys.own_ip())
        self._queues: dict[str, list[Queue]] = {}
        self._waiting: dict[Queue, list[Row]] = {}
        self._waiting_bytes: dict[Queue, int] = {}
        self._sending: dict[Queue, Any] = {}  # the run under way of each queue
        self.rows = 0
        self.bytes = 0

    def write(self, batches: Iterable[Any]) -> None:
        try:
            for columns in batches:
                for queue, row in self._rows(columns.columns, columns.num_rows):
                    self._add(queue, row)
            for queue in list(self._waiting):
                self._flush(queue)
            for sending in self._sending.values():
                sending.result()
        except BaseException:
            for sending in self._sending.values():
                sending.cancel()
            raise

    # ---- rows

    def _rows(self, columns: Sequence[Any], count: int) -> Iterator[tuple[Queue, Row]]:
        found = {name: self._shape.column(columns, name) or [None] * count for name in TAKEN}
        now_ms = int(time.time() * 1000)
        for at in range(count):
            values = {name: column[at] for name, column in found.items()}
            topic = self._shape.topic or values["topic"]
            if not topic:
                raise SparkOptionError(f"row {self.rows} of partition {self._origin.partition} has no topic")
            body = values["body"]
            if not body:
                raise SparkOptionError(f"row {self.rows} of partition {self._origin.partition} has no body, which brokers refuse")
            queue = self._queue(topic, values)
            properties = self._properties(values, now_ms)
            row = Row(body.encode() if isinstance(body, str) else body, properties, _is_delayed(values))
            self.rows += 1
            self.bytes += len(row.body)
            yield queue, row

    def _queue(self, topic: str, values: Mapping[str, Any]) -> Queue:
        queues = self._queues.get(topic)
        if queues is None:
            check_topic_name(topic)
            queues = self._queues[topic] = self._servers.write_queues(topic)
        if values["queueId"] is not None and values["brokerName"] is not None:
            queue = Queue(topic, values["brokerName"], values["queueId"])
            if queue not in queues:
                raise SparkOptionError(f"{topic} has no queue {queue.queue_id} on {queue.broker_name} that can be written")
            return queue
        if values["shardingKey"]:
            return queues[by_sharding_key(len(queues), values["shardingKey"])]
        return queues[(self._origin.partition + self.rows // RUN) % len(queues)]

    def _properties(self, values: Mapping[str, Any], now_ms: int) -> bytes:
        own = {name: value for name, value in values["properties"] or () if value and name not in _NOT_PASSED_ON}
        for name, column in _FROM_COLUMNS:
            value = values[column]
            if value:
                own[name] = value
        row = self.rows
        given = "".join([f"{name}\x01{value}\x02" for name, value in own.items()])
        spark_id = values["idempotencyKey"] or f"{self._mark}{row}"
        number = f"{self._number_head}{self._first_number + row}\x02" if self._numbered else ""
        made = f"UNIQ_KEY\x01{self._next_id(now_ms)}\x02WAIT\x01true\x02{given}{SPARK_ID}\x01{spark_id}\x02{number}"
        text = made.encode()
        count = len(own) + (5 if number else 3)
        if len(text) > MAX_BYTES or text.count(b"\x01") != count or text.count(b"\x02") != count:
            raise SparkOptionError(
                f"the properties of row {row} of partition {self._origin.partition} take {len(text)} bytes (at most "
                f"{MAX_BYTES}), or have a name or value with U+0001 or U+0002 in it"
            )
        return text

    # ---- runs

    def _add(self, queue: Queue, row: Row) -> None:
        size = len(row.body) + len(row.properties) + batch.FIXED_BYTES
        waiting = self._waiting.setdefault(queue, [])
        if waiting and self._waiting_bytes[queue] + size > self._run_bytes:
            self._flush(queue)
            waiting = self._waiting.setdefault(queue, [])
        waiting.append(row)
        self._waiting_bytes[queue] = self._waiting_bytes.get(queue, 0) + size
        if len(waiting) >= RUN:
            self._flush(queue)

    def _flush(self, queue: Queue) -> None:
        """Sends what waits for a queue, after what is under way there has been answered."""
        rows = self._waiting.pop(queue, [])
        self._waiting_bytes.pop(queue, None)
        if not rows:
            return
        before = self._sending.pop(queue, None)
        if before is not None:
            before.result()
        while len(self._sending) >= self._most_runs:
            oldest = next(iter(self._sending))
            self._sending.pop(oldest).result()
        self._sending[queue] = self._servers.submit(lambda: self._send_run(queue, rows))

    async def _send_run(self, queue: Queue, rows: list[Row]) -> None:
        if len(rows) == 1 or any(row.delayed for row in rows):  # brokers take no delayed messages in batches
            await asyncio.gather(*(self._send(queue, row.body, row.properties.decode(), single=True) for row in rows))
        else:
            body = batch.join((0, row.body, row.properties) for row in rows)
            await self._send(queue, body, "WAIT\x01true\x02", single=False)

    async def _send(self, queue: Queue, body: bytes, properties: str, *, single: bool) -> None:
        ext = {
            "a": GROUP, "b": queue.topic, "c": "TBW102", "d": 4, "e": queue.queue_id, "f": 0, "g": int(time.time() * 1000),
            "h": 0, "i": properties, "j": 0, "k": "false", "m": "false" if single else "true", "n": queue.broker_name,
        }  # fmt: skip
        code = RequestCode.SEND_MESSAGE_V2 if single else RequestCode.SEND_BATCH_MESSAGE
        for attempt in range(self._retries + 1):
            answer = await self._servers.a_call(queue, code, ext, self._timeout_ms, body)
            if answer.code in _STORED or is_stored_before(answer.code, answer.remark):
                return
            if answer.code not in _BUSY or attempt == self._retries:
                raise BrokerError(answer.code, answer.remark, f"{queue.topic} on {queue.broker_name}")
            await asyncio.sleep(0.1 * 2**attempt)


def is_stored_before(code: int, remark: str | None) -> bool:
    """The broker says that a number is older than those it remembers. See above for why that means: it has been stored."""
    return code == ResponseCode.MESSAGE_ILLEGAL and "__PRODUCER_SEQ" in (remark or "") and "is older than" in (remark or "")


def _is_delayed(values: Mapping[str, Any]) -> bool:
    return bool(values["delayLevel"] or values["deliverTimeMs"])


_FROM_COLUMNS: Final = (
    ("KEYS", "keys"), ("TAGS", "tags"), ("__SHARDINGKEY", "shardingKey"), ("DELAY", "delayLevel"),
    ("TIMER_DELIVER_MS", "deliverTimeMs"),
)  # fmt: skip
_NOT_PASSED_ON: Final = (RESERVED | {SPARK_ID}) - {"TAGS", "KEYS"}
