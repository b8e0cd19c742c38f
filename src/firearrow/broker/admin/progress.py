"""Consumer progress and contents of queues: offsets, lag, time spans, queue entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from firearrow.broker.admin.sliced_answers import SlicedAnswers
from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.pull import subscription as sub
from firearrow.broker.requests.responses import Refused, done, json_answer
from firearrow.net.server import Connection
from firearrow.store.consume_queue import ENTRY
from firearrow.wire.bodies import admin as bodies
from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers import admin as headers

MAX_ENTRIES = 10_000  # of a queue in one answer
MAX_QUEUES = 200_000  # of which one answer has the progress; each takes about 200 bytes
QUEUES_PER_STEP = 512  # each costs about 15 us
GROUPS_PER_STEP = 128
NO_CORRECTION = 2**63 - 1


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    return _progress_handlers(broker) | _offset_handlers(broker)


def _progress_handlers(broker: BrokerContext) -> dict[int, Handler]:
    """Handlers that compute the progress of groups."""
    offsets = broker.offsets
    answers = SlicedAnswers()

    def get_consume_stats(conn: Connection, request: Command, now_ms: int) -> bytes | None:
        header = headers.GetConsumeStatsRequestHeader.decode(request.ext)
        if header.topic_list:
            topics = [topic for topic in dict.fromkeys(header.topic_list.split(";")) if topic]
        else:
            topics = [header.topic] if header.topic else offsets.topics_of(header.consumer_group)
        _check_queues(broker, topics)
        stats = _Stats()
        steps = _consume_stats(broker, header.consumer_group, topics, stats)
        return answers.answer(conn, request, steps, lambda: encode_response(request, ResponseCode.SUCCESS, body=stats.text()))

    def get_broker_consume_stats(conn: Connection, request: Command, now_ms: int) -> bytes | None:
        ordered_only = headers.GetConsumeStatsInBrokerHeader.decode(request.ext).is_order
        stats = _BrokerStats(broker)
        return answers.answer(conn, request, stats.steps(ordered_only), lambda: json_answer(request, stats.to_json()))

    def query_consume_time_span(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.QueryConsumeTimeSpanRequestHeader.decode(request.ext)
        queue_ids = range(broker.topics.must_find(header.topic).read_queue_nums)
        spans = [_time_span(broker, header.group, header.topic, queue_id, now_ms) for queue_id in queue_ids]
        return json_answer(request, bodies.QueryConsumeTimeSpanBody(spans))

    return {
        RequestCode.GET_CONSUME_STATS: get_consume_stats,
        RequestCode.GET_BROKER_CONSUME_STATS: get_broker_consume_stats,
        RequestCode.QUERY_CONSUME_TIME_SPAN: query_consume_time_span,
    }


def _offset_handlers(broker: BrokerContext) -> dict[int, Handler]:
    """Handlers of offsets and queue entries."""
    offsets = broker.offsets

    def query_correction_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.QueryCorrectionOffsetHeader.decode(request.ext)
        left_out = set((header.filter_groups or "").split(","))
        lowest: dict[int, int] = {}
        for group in offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in offsets.offsets_of(group, header.topic).items():
                queue = broker.store.find_queue(header.topic, queue_id)
                if offset >= (0 if queue is None else queue.min_offset):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        for queue_id, offset in offsets.offsets_of(header.compare_group, header.topic).items():
            if lowest.get(queue_id, 0) > offset:
                lowest[queue_id] = NO_CORRECTION
        return json_answer(request, bodies.QueryCorrectionOffsetBody(dict(sorted(lowest.items()))))

    def clone_group_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = headers.CloneGroupOffsetRequestHeader.decode(request.ext)
        if broker.groups.find(header.dest_group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group {header.dest_group} does not exist, so it cannot be given offsets; create it first",
            )
        topics = [header.topic] if header.topic else offsets.topics_of(header.src_group)
        online = broker.clients.topics_subscribed_by(header.src_group)
        for topic in topics:
            if broker.topics.find(topic) is None:
                continue
            # Of a group that is online, topics it no longer subscribes to are left-overs.
            if not header.offline and online and topic not in online:
                continue
            offsets.clone(header.src_group, header.dest_group, topic)
        return done(request)

    def get_all_consumer_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        if offsets.is_empty():
            raise Refused(ResponseCode.SYSTEM_ERROR, "No consumer offset in this broker")
        return json_answer(request, offsets.wrapper())

    def get_all_delay_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, broker.delay.table())

    def query_consume_queue(conn: Connection, request: Command, now_ms: int) -> bytes:
        return _query_consume_queue(broker, request, headers.QueryConsumeQueueRequestHeader.decode(request.ext))

    return {
        RequestCode.QUERY_CORRECTION_OFFSET: query_correction_offset,
        RequestCode.CLONE_GROUP_OFFSET: clone_group_offset,
        RequestCode.GET_ALL_CONSUMER_OFFSET: get_all_consumer_offset,
        RequestCode.GET_ALL_DELAY_OFFSET: get_all_delay_offset,
        RequestCode.QUERY_CONSUME_QUEUE: query_consume_queue,
    }


@dataclass(slots=True)
class _Stats:
    """Progress of a group in some topics, encoded queue by queue."""

    entries: list[bytes] = field(default_factory=list)
    tps: float = 0.0
    diff: int = 0
    inflight: int = 0

    def add(self, queue: QueueBody, offsets: bodies.OffsetWrapper) -> None:
        self.entries.append(orjson.dumps(queue.to_json()) + b":" + orjson.dumps(offsets.to_json()))
        self.diff += max(offsets.broker_offset - offsets.consumer_offset, 0)
        self.inflight += max(offsets.pull_offset - offsets.consumer_offset, 0)

    def text(self) -> bytes:
        """Return the text of a `bodies.ConsumeStats`."""
        return b'{"consumeTps":%b,"offsetTable":{%b}}' % (orjson.dumps(self.tps), b",".join(self.entries))


class _BrokerStats:
    """Progress of all groups."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._groups: list[bytes] = []
        self._queues = self._diff = self._inflight = 0

    def steps(self, ordered_only: bool) -> Iterator[None]:
        """Collect the progress of every group."""
        broker = self._broker
        for number, group in enumerate(list(broker.groups.all())):
            if number % GROUPS_PER_STEP == GROUPS_PER_STEP - 1:
                yield
            found = []
            for topic in broker.offsets.topics_of(group):
                config = broker.topics.find(topic)
                if config is None or (ordered_only and not config.order):
                    continue
                stats = _Stats()
                yield from _consume_stats(broker, group, [topic], stats)
                self._queues += len(stats.entries)
                self._diff += stats.diff
                self._inflight += stats.inflight
                if stats.entries and self._queues <= MAX_QUEUES:  # a longer response would occupy too much memory
                    found.append(stats.text())
            if found:
                self._groups.append(b"{%b:[%b]}" % (orjson.dumps(group), b",".join(found)))

    def to_json(self) -> dict[str, Any]:
        total = bodies.ConsumeStatsList([], self._broker.address, self._diff, self._inflight)
        return total.to_json() | {"consumeStatsList": orjson.Fragment(b"[%b]" % b",".join(self._groups))}


def _consume_stats(broker: BrokerContext, group: str, topics: list[str], stats: _Stats) -> Iterator[None]:
    """Add the progress of a group in these topics to `stats`."""
    online = broker.clients.topics_subscribed_by(group)
    for topic in topics:
        config = broker.topics.find(topic)
        if config is None or (online and topic not in online):
            continue
        for queue_id in range(config.read_queue_nums):
            queue = broker.store.find_queue(topic, queue_id)
            consumed = broker.offsets.query(group, topic, queue_id) or 0
            pulled = broker.offsets.query_pulled(group, topic, queue_id)
            last = broker.store.reader.store_time(queue, consumed - 1) if queue is not None and consumed > 0 else None
            offsets = bodies.OffsetWrapper(
                broker_offset=0 if queue is None else queue.max_offset,
                consumer_offset=consumed,
                pull_offset=consumed if pulled is None else pulled,
                last_timestamp=last or 0,
            )
            stats.add(QueueBody(topic, broker.name, queue_id), offsets)
            if len(stats.entries) % QUEUES_PER_STEP == 0:
                yield
        stats.tps += broker.stats.tps("GROUP_GET_NUMS", f"{topic}@{group}")


def _check_queues(broker: BrokerContext, topics: list[str]) -> None:
    queues = sum(config.read_queue_nums for topic in topics if (config := broker.topics.find(topic)) is not None)
    if queues > MAX_QUEUES:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"the topics have {queues} queues; {MAX_QUEUES} is the maximum, name fewer")


def _time_span(broker: BrokerContext, group: str, topic: str, queue_id: int, now_ms: int) -> bodies.QueueTimeSpan:
    span = bodies.QueueTimeSpan(QueueBody(topic, broker.name, queue_id), -1, -1, -1, 0)
    queue = broker.store.find_queue(topic, queue_id)
    if queue is None:
        return span
    consumed = broker.offsets.query(group, topic, queue_id) or 0
    span.min_time_stamp = _or_minus_one(broker.store.reader.earliest_store_time(queue))
    span.max_time_stamp = _or_minus_one(broker.store.reader.store_time(queue, queue.max_offset - 1))
    span.consume_time_stamp = (
        _or_minus_one(broker.store.reader.store_time(queue, consumed - 1)) if consumed > 0 else span.min_time_stamp
    )
    if consumed < queue.max_offset:
        next_at = broker.store.reader.store_time(queue, max(consumed, queue.min_offset))
        span.delay_time = max(now_ms - next_at, 0) if next_at is not None else 0
    return span


def _query_consume_queue(broker: BrokerContext, request: Command, header: headers.QueryConsumeQueueRequestHeader) -> bytes:
    queue = broker.store.find_queue(header.topic, header.queue_id)
    if queue is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
    body = bodies.QueryConsumeQueueResponseBody(min_queue_index=queue.min_offset, max_queue_index=queue.max_offset)
    codes: frozenset[int] | None = None
    if header.consumer_group:
        body.subscription_data = broker.clients.subscription(header.consumer_group, header.topic)
        if body.subscription_data is None:
            body.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
        else:
            codes = sub.tag_codes(body.subscription_data)
    if not queue.min_offset <= header.index < queue.max_offset:
        return json_answer(request, body, f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!")
    entries = queue.entries(header.index, min(max(header.count, 0), MAX_ENTRIES))
    subscribed = body.subscription_data is not None
    body.queue_data = [
        bodies.ConsumeQueueData(offset, size, code, eval=subscribed and (codes is None or code in codes))
        for offset, size, code in ENTRY.iter_unpack(entries)
    ]
    return json_answer(request, body)


def _or_minus_one(time_ms: int | None) -> int:
    return -1 if time_ms is None else time_ms
