"""Reads ranges of queues from brokers: pulls, several under way at once, joined until it pays to decode them.

Apache's broker gives few messages a pull (32); ours gives many to whoever asks for them in bulk. Decoding has a fixed cost. So a
range is cut into pieces of `decodeRecords` offsets; each piece is pulled to its end in one go, `_AHEAD` pieces at a time, and
decoded as one. Pieces come out in their order. A piece that grows beyond `_PIECE_BYTES` ends early and its rest becomes the next
piece, which bounds the memory of a task.

Messages that were deleted before they could be read are data loss: either an error with the exact range, or skipped.
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
_PIECE_BYTES: Final = 8 << 20
_WITH_SUBSCRIPTION: Final = 0x4  # the pull says what it wants; no heartbeat has to


@dataclass(slots=True)
class Piece:
    queue: Queue
    first: int
    body: bytes
    next: int  # where to go on; the end of the piece, or less if it became too large
    end: int


def subscribed(options: DataSourceOptions, topic: str) -> Subscription:
    expression = options["subExpression"]
    return subscription(topic, Sql(expression) if options["expressionType"] == "SQL92" else expression, 0)


def read_ranges(wanted: Sequence[Range], options: DataSourceOptions, columns: Columns, names: Sequence[str]) -> Iterator[Any]:
    """Record batches of everything in the ranges, queue after queue."""
    servers = cluster_client(options.client())
    for piece in _pieces(servers, wanted, options):
        tags = subscribed(options, piece.queue.topic).tags
        batch = _decoded(piece, tags, options, columns, names)
        if batch is not None:
            yield batch


def sample_bytes(
    servers: ClusterClient, queue: Queue, offset: int, options: DataSourceOptions, count: int = 16
) -> tuple[int, int]:
    """(messages, bytes) of the next few messages of a queue: what a message weighs there."""
    piece = _Pull(servers, options).begin(Range(queue, offset, offset + count), lossless=False).result()
    found = find_records(piece.body).records
    return len(found), len(piece.body)


def _pieces(servers: ClusterClient, wanted: Sequence[Range], options: DataSourceOptions) -> Iterator[Piece]:
    pull = _Pull(servers, options)
    size = options["decodeRecords"]
    left = (Range(queue, at, min(at + size, end)) for queue, first, end in wanted for at in range(first, end, size))
    under_way: deque[Future[Piece]] = deque()
    try:
        while True:
            while len(under_way) < _AHEAD and (following := next(left, None)) is not None:
                under_way.append(pull.begin(following, options["failOnDataLoss"]))
            if not under_way:
                return
            piece = under_way.popleft().result()
            if piece.next < piece.end:
                under_way.appendleft(pull.begin(Range(piece.queue, piece.next, piece.end), options["failOnDataLoss"]))
            yield piece
    finally:
        for future in under_way:
            future.cancel()


def _decoded(
    piece: Piece, tags: frozenset[str] | None, options: DataSourceOptions, columns: Columns, names: Sequence[str]
) -> Any:
    found = find_records(piece.body)
    if found.end != len(piece.body):
        raise ClientError(
            f"what {piece.queue.broker_name} answered to a pull of {piece.queue.topic} cannot be read: {found.stop.value}"
        )
    records = found.records
    offsets = records.field("queue_offset")
    records = records.filter((offsets >= piece.first) & (offsets < piece.end))
    if tags is not None and len(records):  # brokers compare hash codes, which tags may share
        same = pc.is_in(tags_of(records), value_set=pa.array(sorted(tags), pa.string()))
        records = records.filter(same.to_numpy(zero_copy_only=False))
    if not len(records):
        return None
    return record_batch(records, columns, broker_name=piece.queue.broker_name, decompress=options["decompress"], names=names)


class _Pull:
    def __init__(self, servers: ClusterClient, options: DataSourceOptions) -> None:
        self._servers = servers
        self._options = options
        self._batch = options["pullBatchSize"]  # never more bytes than pullMaxBytes, by what messages weighed so far
        self._subscribed: dict[str, Subscription] = {}

    def begin(self, wanted: Range, lossless: bool) -> Future[Piece]:
        return self._servers.submit(lambda: self._piece(wanted, lossless))

    async def _piece(self, wanted: Range, lossless: bool) -> Piece:
        queue, first, end = wanted
        bodies: list[bytes] = []
        size, at = 0, first
        while at < end and size < _PIECE_BYTES:
            body, following = await self._pull(queue, at, end, lossless)
            bodies.append(body)
            size += len(body)
            at = following
        return Piece(queue, first, b"".join(bodies), min(at, end), end)

    async def _pull(self, queue: Queue, offset: int, end: int, lossless: bool) -> tuple[bytes, int]:
        """(records, where to go on) of one pull."""
        wanted = self._subscribed.get(queue.topic)
        if wanted is None:
            wanted = self._subscribed[queue.topic] = subscribed(self._options, queue.topic)
        pull = PullMessageRequestHeader(
            consumer_group=self._options["consumerGroup"], topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=min(self._batch, end - offset), sys_flag=_WITH_SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0,
            sub_version=0, subscription=wanted.expression, expression_type=wanted.kind, bulk=True,
        )  # fmt: skip
        answer = await self._servers.call_async(queue, pull, self._options["pullTimeoutMs"])
        if answer.code not in _STATUSES:
            raise BrokerError(answer.code, answer.remark, f"{queue.topic} on {queue.broker_name}")
        header = PullMessageResponseHeader.decode(answer.ext)
        following = header.next_begin_offset
        if answer.code == ResponseCode.SUCCESS and following > offset:
            weight = max(1, len(answer.body) // (following - offset))
            self._batch = min(self._options["pullBatchSize"], max(1, self._options["pullMaxBytes"] // weight))
            return answer.body, following
        everything = wanted.expression == "*"
        if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and following > offset and not everything:
            return b"", following
        # Nothing of what the plan saw is here: it was deleted, or the queue is not what it was.
        gone = min(end, following) if offset < following else end
        if lossless:
            raise DataLossError(
                f"data loss: offsets {offset} to {gone - 1} of queue {queue.queue_id} of {queue.topic} on {queue.broker_name} "
                f"are not there any more (it has {header.min_offset} to {header.max_offset - 1} now); "
                "set failOnDataLoss to false to read what is left"
            )
        return b"", max(gone, offset + 1)


_STATUSES: Final = frozenset((
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED,
))  # fmt: skip
