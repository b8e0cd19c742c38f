"""Requests from brokers to a client.

    39   one-way   check a transaction                         the producer decides, see transaction.py
    40   one-way   the members of a group changed              the consumer rebalances
    220            reset offsets
    221            return the consumed offsets of a topic
    307            return the running info
    309            consume a message now
    326            reply to a request message                  request_reply.py

Requests that wait for a consumer are handled in tasks of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from firearrow.client.connection.members import ConsumerMember, ProducerMember
from firearrow.client.lifecycle import BackgroundTasks
from firearrow.client.message import MessageQueue, received
from firearrow.client.producer.request_reply import ReplyRegistry
from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.bodies.admin import GetConsumerStatusBody, ResetOffsetBody
from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.admin import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader, NotifyConsumerIdsChangedRequestHeader
from firearrow.wire.properties import PROPERTY_PRODUCER_GROUP
from firearrow.wire.record import decode

log = logging.getLogger("firearrow.client")

Answer = tuple[int, str | None, bytes]


class ServerRequests:
    """Dispatches requests to members by group. Both maps belong to the instance, which changes them."""

    def __init__(
        self,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
        replies: ReplyRegistry,
        namespace: str,
        broker_name: Callable[[str], str],
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._replies = replies
        self._namespace = namespace
        self._broker_name = broker_name  # of an address
        self._tasks = BackgroundTasks()
        self._immediate: Final[dict[int, Callable[[Channel, Command], None]]] = {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply,
        }
        self._in_tasks: Final[dict[int, Callable[[Channel, Command], Awaitable[Answer]]]] = {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def handle(self, channel: Channel, request: Command) -> None:
        """Handle a request of a broker."""
        immediate = self._immediate.get(request.code)
        if immediate is not None:
            try:
                immediate(channel, request)
            except ProtocolError as error:
                log.warning("malformed request %d of %s: %s", request.code, channel.address, error)
                _answer(channel, request, (ResponseCode.SYSTEM_ERROR, str(error), b""))
            return
        respond = self._in_tasks.get(request.code)
        if respond is None:
            remark = f"request type {request.code} not supported"
            _answer(channel, request, (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark, b""))
            return
        self._tasks.start(self._respond_in_task(channel, request, respond))

    def close(self) -> None:
        self._tasks.cancel()

    def _check_transaction(self, channel: Channel, request: Command) -> None:
        header = CheckTransactionStateRequestHeader.decode(request.ext)
        message = received(decode(request.body), header.bname or self._broker_name(channel.address), self._namespace)
        group = message.get(PROPERTY_PRODUCER_GROUP) or ""
        producer = self._producers.get(group)
        if producer is None:
            log.warning("%s checks a transaction of the unknown producer group %r", channel.address, group)
        else:
            producer.check_transaction(channel.address, header, message)

    def _ids_changed(self, channel: Channel, request: Command) -> None:
        consumer = self._consumers.get(NotifyConsumerIdsChangedRequestHeader.decode(request.ext).consumer_group)
        if consumer is not None:
            consumer.rebalance_soon()

    def _reply(self, channel: Channel, request: Command) -> None:
        self._replies.arrived(request, self._broker_name(channel.address))
        _answer(channel, request, (ResponseCode.SUCCESS, None, b""))

    async def _reset_offsets(self, channel: Channel, request: Command) -> Answer:
        header = ResetOffsetRequestHeader.decode(request.ext)
        table = ResetOffsetBody.from_json(fastjson.loads(request.body or b"{}")).offset_table
        offsets = {MessageQueue(queue.topic, queue.broker_name, queue.queue_id): offset for queue, offset in table.items()}
        await self._consumer(header.group).reset_offsets(header.topic, offsets)
        return ResponseCode.SUCCESS, None, b""

    async def _status(self, channel: Channel, request: Command) -> Answer:
        header = GetConsumerStatusRequestHeader.decode(request.ext)
        offsets = self._consumer(header.group).consumed_offsets(header.topic)
        table = {QueueBody(queue.topic, queue.broker_name, queue.queue_id): offset for queue, offset in offsets.items()}
        return ResponseCode.SUCCESS, None, fastjson.dumps(GetConsumerStatusBody(message_queue_table=table).to_json())

    async def _running_info(self, channel: Channel, request: Command) -> Answer:
        header = GetConsumerRunningInfoRequestHeader.decode(request.ext)
        info = await self._consumer(header.consumer_group).running_info()
        return ResponseCode.SUCCESS, None, fastjson.dumps(info.to_json())

    async def _consume_directly(self, channel: Channel, request: Command) -> Answer:
        header = ConsumeMessageDirectlyResultRequestHeader.decode(request.ext)
        broker_name = header.broker_name or self._broker_name(channel.address)
        message = received(decode(request.body), broker_name, self._namespace, restore_topic=True)
        result = await self._consumer(header.consumer_group).consume_directly(message)
        return ResponseCode.SUCCESS, None, fastjson.dumps(result.to_json())

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise ProtocolError(f"this client does not have the consumer group {group}")
        return consumer

    async def _respond_in_task(
        self, channel: Channel, request: Command, respond: Callable[[Channel, Command], Awaitable[Answer]]
    ) -> None:
        answer: Answer
        try:
            answer = await respond(channel, request)
        except ProtocolError as error:
            answer = (ResponseCode.SYSTEM_ERROR, str(error), b"")
        except Exception as error:
            log.exception("request %d of %s failed", request.code, channel.address)
            answer = (ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}", b"")
        _answer(channel, request, answer)


def _answer(channel: Channel, request: Command, answer: Answer) -> None:
    if not request.is_oneway:
        code, remark, body = answer
        channel.answer(encode_response(request, code, remark, {}, body))
