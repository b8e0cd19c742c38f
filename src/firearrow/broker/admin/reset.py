"""Offset resets (222): to a time, to an offset, to the end.

On the broker (`useServerSideResetOffset`, the default): the new offsets are stored as pending resets, for all queues or one,
whether consumers are online or not. Each consumer's next pull is redirected there, and parked pulls are resumed at once.

On the consumers, as brokers before 5.0 did it: every consumer of the group receives a request (220) to drop its queues and to
continue at the given offsets. This requires online consumers and committed offsets; without force it only moves backwards.
"""

from __future__ import annotations

import logging

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused, json_answer
from firearrow.net.server import Connection
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.wire import fastjson
from firearrow.wire.bodies.admin import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.bodies.topic import TopicConfig
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.headers.admin import ResetConsumerClientOffsetRequestHeader, ResetOffsetRequestHeader

log = logging.getLogger("firearrow.broker")

NO_OFFSET = -1
ALL_QUEUES = -1
OLDEST_CLIENT = 28  # V3_0_7_SNAPSHOT: clients before it do not know 220


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    def reset_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = ResetOffsetRequestHeader.decode(request.ext)
        config = broker.topics.find(header.topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if broker.groups.find(header.group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        if broker.settings.use_server_side_reset_offset:
            targets = _targets(broker, header, config)
            online = broker.clients.consumer_group(header.group) is not None
            for queue_id, offset in targets.items():
                if online:
                    broker.offsets.reset(header.group, header.topic, queue_id, offset)
                else:  # no member can overwrite it; the next consumer starts there
                    broker.offsets.set(header.group, header.topic, queue_id, offset)
                broker.wake_queue(header.topic, queue_id)
        else:
            targets = _tell_consumers(broker, header, config, c_list=request.language == "CPP")
        fields = {"event": "offsets_reset", "group": header.group, "topic": header.topic, "offsets": targets, "by": conn.peer}
        log.info("group %s of topic %s was sent to offsets %s", header.group, header.topic, targets, extra={"fields": fields})
        return json_answer(request, _offset_table(broker, header.topic, targets), None if targets else "No queues to reset.")

    return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: reset_offset}


def _targets(broker: BrokerContext, header: ResetOffsetRequestHeader, config: TopicConfig) -> dict[int, int]:
    """Return the target offset of each queue."""
    if header.queue_id == ALL_QUEUES or header.queue_id < 0:
        queue_ids = list(range(config.read_queue_nums))
    elif header.queue_id < max(config.read_queue_nums, config.write_queue_nums):
        queue_ids = [header.queue_id]
    else:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"queueId is {header.queue_id}, but topic {header.topic} has {config.read_queue_nums} read queues",
        )
    explicit = header.offset if header.offset is not None and header.offset != NO_OFFSET else None
    targets = {}
    for queue_id in queue_ids:
        queue = broker.store.find_queue(header.topic, queue_id)
        if explicit is not None:
            low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
            if not low <= explicit <= high + 1:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"Target offset {explicit} not in consume queue range [{low}-{high}]")
            targets[queue_id] = explicit
        else:
            targets[queue_id] = _offset_at(broker, queue, header.timestamp)
    return targets


def _offset_at(broker: BrokerContext, queue: ConsumeQueue | None, timestamp_ms: int) -> int:
    if queue is None:
        return 0
    return queue.max_offset if timestamp_ms < 0 else broker.store.reader.offset_by_time(queue, timestamp_ms)


def _tell_consumers(
    broker: BrokerContext, header: ResetOffsetRequestHeader, config: TopicConfig, *, c_list: bool
) -> dict[int, int]:
    targets = {}
    for queue_id in range(config.write_queue_nums):
        consumed = broker.offsets.query(header.group, header.topic, queue_id)
        if consumed is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist: it has no offset of queue {queue_id}"
            )
        offset = _offset_at(broker, broker.store.find_queue(header.topic, queue_id), header.timestamp)
        targets[queue_id] = offset if header.is_force or offset < consumed else consumed
    consumers = broker.clients.consumer_group(header.group)
    if consumers is None:
        raise Refused(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset online client offset. Group: {header.group}, Topic: {header.topic}",
        )
    too_old = [member.client_id for member in consumers.members.values() if member.version < OLDEST_CLIENT]
    if too_old:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the client does not support this feature: {', '.join(too_old)}")
    notice = ResetConsumerClientOffsetRequestHeader(topic=header.topic, group=header.group, timestamp=header.timestamp)
    told = _offset_list(broker, header.topic, targets) if c_list else _offset_table(broker, header.topic, targets)
    body = fastjson.dumps(told.to_json())
    for conn in consumers.members:
        broker.notify(conn, notice, body)
    return targets


def _offset_table(broker: BrokerContext, topic: str, targets: dict[int, int]) -> ResetOffsetBody:
    return ResetOffsetBody({QueueBody(topic, broker.name, queue_id): offset for queue_id, offset in targets.items()})


def _offset_list(broker: BrokerContext, topic: str, targets: dict[int, int]) -> ResetOffsetBodyForC:
    """Return the body in the format of C++ clients."""
    return ResetOffsetBodyForC([MessageQueueForC(topic, broker.name, queue_id, offset) for queue_id, offset in targets.items()])
