"""Reading of queue ranges from brokers with concurrent pull requests.

Apache's broker returns few messages per pull (32), ours returns many to a bulk request, and decoding has a fixed cost. A range is
therefore split into chunks of `decodeRecords` offsets. Each chunk is pulled completely, `_AHEAD` chunks at a time, and decoded as
one. Chunks are returned in order. A chunk that exceeds `_CHUNK_BYTES` ends early and its rest becomes the next chunk, which
bounds the memory of a task.

Messages that were deleted before they were read are data loss: an error with the exact range, or skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from firearrow.client.consumer.subscription import Sql, Subscription, subscription
from firearrow.client.errors import BrokerError, ClientError
from firearrow.spark.cluster import ClusterClient, cluster_client
from firearrow.spark.decode.columns import Columns, record_batch, tags_of
from firearrow.spark.decode.records import find_records
from firearrow.spark.errors import DataLossError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.read.offsets import Queue
from firearrow.spark.read.planning import Range
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.client import PullMessageRequestHeader, PullMessageResponseHeader

_AHEAD: Final = 4
_CHUNK_BYTES: Final = 8 << 20
_WITH_SUBSCRIPTION: Final = 0x4  # the request contains the subscription; no heartbeat is needed


@dataclass(slots=True)
class Chunk:
    """Records of a part of a range."""

    queue: Queue
    first: int
    body: bytes
    next: int  # offset of the rest; less than `end` if the chunk became too large
    end: int


def subscription_of(options: DataSourceOptions, topic: str) -> Subscription:
    expression = options["subExpression"]
    return subscription(topic, Sql(expression) if options["expressionType"] == "SQL92" else expression, 0)


def read_ranges(wanted: Sequence[Range], options: DataSourceOptions, columns: Columns) -> Iterator[Any]:
    """Yield record batches of all messages in the ranges, queue by queue."""
    client = cluster_client(options.client())
    for chunk in _chunks(client, wanted, options):
        tags = subscription_of(options, chunk.queue.topic).tags
        batch = _decode(chunk, tags, options, columns)
        if batch is not None:
            yield batch


def sample_bytes(
    client: ClusterClient, queue: Queue, offset: int, options: DataSourceOptions, count: int = 16
) -> tuple[int, int]:
    """Return (messages, bytes) of the next few messages of a queue."""
    chunk = LivePuller(client, options).begin(Range(queue, offset, offset + count), lossless=False).result()
    found = find_records(chunk.body).records
    return len(found), len(chunk.body)


def _chunks(client: ClusterClient, wanted: Sequence[Range], options: DataSourceOptions) -> Iterator[Chunk]:
    pull = LivePuller(client, options)
    size = options["decodeRecords"]
    left = (Range(queue, at, min(at + size, end)) for queue, first, end in wanted for at in range(first, end, size))
    in_flight: deque[Future[Chunk]] = deque()
    try:
        while True:
            while len(in_flight) < _AHEAD and (following := next(left, None)) is not None:
                in_flight.append(pull.begin(following, options["failOnDataLoss"]))
            if not in_flight:
                return
            chunk = in_flight.popleft().result()
            if chunk.next < chunk.end:
                in_flight.appendleft(pull.begin(Range(chunk.queue, chunk.next, chunk.end), options["failOnDataLoss"]))
            yield chunk
    finally:
        for future in in_flight:
            future.cancel()


def _decode(chunk: Chunk, tags: frozenset[str] | None, options: DataSourceOptions, columns: Columns) -> Any:
    found = find_records(chunk.body)
    if found.end != len(chunk.body):
        raise ClientError(f"{chunk.queue.broker_name} returned invalid records of {chunk.queue.topic}: {found.stop.value}")
    records = found.records
    offsets = records.field("queue_offset")
    records = records.filter((offsets >= chunk.first) & (offsets < chunk.end))
    if tags is not None and len(records):  # brokers compare hash codes, which may collide
        same = pc.is_in(tags_of(records), value_set=pa.array(sorted(tags), pa.string()))
        records = records.filter(same.to_numpy(zero_copy_only=False))
    if not len(records):
        return None
    return record_batch(records, columns, broker_name=chunk.queue.broker_name, decompress=options["decompress"])


class LivePuller:
    """Pull requests of a task, with an adaptive batch size."""

    def __init__(self, client: ClusterClient, options: DataSourceOptions) -> None:
        self._client = client
        self._options = options
        self.batch_size = options[
            "pullBatchSize"
        ]  # reduced so that a reply stays below pullMaxBytes, by the size of previous messages
        self._subscriptions: dict[str, Subscription] = {}

    def begin(self, wanted: Range, lossless: bool) -> Future[Chunk]:
        return self._client.submit(self._pull_chunk(wanted, lossless))

    async def _pull_chunk(self, wanted: Range, lossless: bool) -> Chunk:
        queue, first, end = wanted
        bodies: list[bytes] = []
        size, at = 0, first
        while at < end and size < _CHUNK_BYTES:
            body, next_offset = await self._pull(queue, at, end, lossless)
            bodies.append(body)
            size += len(body)
            at = next_offset
        return Chunk(queue, first, b"".join(bodies), min(at, end), end)

    async def _pull(self, queue: Queue, offset: int, end: int, lossless: bool) -> tuple[bytes, int]:
        """Send one pull request; return the records and the next offset."""
        wanted = self._subscriptions.get(queue.topic)
        if wanted is None:
            wanted = self._subscriptions[queue.topic] = subscription_of(self._options, queue.topic)
        pull = PullMessageRequestHeader(
            consumer_group=self._options["consumerGroup"], topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=min(self.batch_size, end - offset), sys_flag=_WITH_SUBSCRIPTION, commit_offset=0,
            suspend_timeout_millis=0, sub_version=0, subscription=wanted.expression, expression_type=wanted.kind, bulk=True,
        )  # fmt: skip
        reply = await self._client.call_async(queue, pull, self._options["pullTimeoutMs"])
        if reply.code not in _STATUSES:
            raise BrokerError(reply.code, reply.remark, f"{queue.topic} on {queue.broker_name}")
        header = PullMessageResponseHeader.decode(reply.ext)
        next_offset = header.next_begin_offset
        if reply.code == ResponseCode.SUCCESS and next_offset > offset:
            weight = max(1, len(reply.body) // (next_offset - offset))
            self.batch_size = min(self._options["pullBatchSize"], max(1, self._options["pullMaxBytes"] // weight))
            return reply.body, next_offset
        everything = wanted.expression == "*"
        if reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY and next_offset > offset and not everything:
            return b"", next_offset
        # The planned messages are missing: they were deleted, or the queue was recreated.
        lost_end = min(end, next_offset) if offset < next_offset else end
        if lossless:
            raise DataLossError(
                f"data loss: offsets {offset} to {lost_end - 1} of {queue} no longer exist (it has {header.min_offset} to "
                f"{header.max_offset - 1} now); set failOnDataLoss to false to read what is left"
            )
        return b"", max(lost_end, offset + 1)


_STATUSES: Final = frozenset((
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED,
))  # fmt: skip
