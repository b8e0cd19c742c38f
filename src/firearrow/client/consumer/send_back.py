"""Sending back messages that were not consumed: the broker redelivers them, or makes them dead letters.

First the broker of the message is asked (36) to copy its record to `%RETRY%<group>` with a delay. If that fails, the message is
sent to `%RETRY%<group>` of any broker like a producer's. If that fails as well, the consumer keeps the message.

`reconsume_times` of the message counts the redeliveries. Beyond `max_reconsume_times` the broker puts it into `%DLQ%<group>`.
"""

from __future__ import annotations

import logging
import random
from typing import Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer.listener import DEAD_LETTER
from firearrow.client.consumer.queue_offsets import master_address
from firearrow.client.errors import BrokerError, FirearrowError
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.clock import wall_ms
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.headers.client import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC, CLIENT_INNER_PRODUCER_GROUP, RETRY_PREFIX, dlq_topic, retry_topic

MAX_RECONSUME_TIMES: Final = 16
FIRST_RETRY_LEVEL: Final = 3
TIMEOUT_MS: Final = 5_000

_STORED: Final = frozenset((
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
))  # fmt: skip
_REMOVED_PROPERTIES: Final = ("TRAN_MSG", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")

log = logging.getLogger("firearrow.client")


class SendBack:
    """Sends back the messages of one group."""

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int = MAX_RECONSUME_TIMES) -> None:
        self._instance = instance
        self._group = group
        self.max_reconsume_times = max_reconsume_times

    async def to_broker(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Return True when a broker has accepted the message. `delay_level` is that of `RetryLater`."""
        try:
            address = await master_address(self._instance, message.queue)
            header = ConsumerSendMsgBackRequestHeader(
                offset=message.commit_log_offset,
                group=self._group,
                delay_level=delay_level,
                origin_msg_id=message.msg_id,
                origin_topic=message.topic,
                max_reconsume_times=self.max_reconsume_times,
            )
            await self._instance.check(address, header, timeout_ms=TIMEOUT_MS)
        except FirearrowError as error:
            log.warning("%s cannot be sent back to its broker and goes to the retry topic instead: %s", message, error)
            return await self.as_message(message, delay_level)
        if delay_level == DEAD_LETTER or message.reconsume_times >= self.max_reconsume_times:
            self._log_dead_letter(message)
        return True

    async def as_message(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Send the message to the retry topic. Return True when it is stored."""
        try:
            queue = await self._retry_queue(message.queue.broker_name)
            address = await master_address(self._instance, queue)
            header = self._send_header(message, queue, delay_level)
            answer = await self._instance.call(address, header, message.body, timeout_ms=TIMEOUT_MS)
            if answer.code not in _STORED:
                raise BrokerError(answer.code, answer.remark, address)
        except FirearrowError as error:
            log.warning("%s cannot be sent to the retry topic of %s: %s", message, self._group, error)
            return False
        if delay_level == DEAD_LETTER or message.reconsume_times >= self.max_reconsume_times:
            self._log_dead_letter(message)
        return True

    def _log_dead_letter(self, message: ReceivedMessage) -> None:
        attempts = message.reconsume_times + 1
        log.warning("%s is a dead letter in %s after %d attempts", message, dlq_topic(self._group), attempts)

    async def _retry_queue(self, failed_broker: str) -> MessageQueue:
        """Return a queue of the retry topic, preferably on another broker than `failed_broker`, which has just failed."""
        topic = retry_topic(self._group)
        queues = (await self._instance.route(topic)).write_queues()
        elsewhere = [queue for queue in queues if queue.broker_name != failed_broker]
        if not queues:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"no queue of {topic} is writable", "every broker")
        return random.choice(elsewhere or queues)

    def _send_header(self, message: ReceivedMessage, queue: MessageQueue, delay_level: int) -> SendMessageRequestHeaderV2:
        known = message.all_properties
        for name in _REMOVED_PROPERTIES:
            known.pop(name, None)
        if not message.queue.topic.startswith(RETRY_PREFIX):
            known[properties.PROPERTY_RETRY_TOPIC] = message.queue.topic
        known.setdefault(properties.PROPERTY_ORIGIN_MESSAGE_ID, message.offset_msg_id)
        if delay_level == DEAD_LETTER:  # otherwise older brokers would delay it
            known.pop(properties.PROPERTY_DELAY_TIME_LEVEL, None)
        else:
            level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
            known[properties.PROPERTY_DELAY_TIME_LEVEL] = str(level)
        # The broker makes it a dead letter if it was delivered more often than the limit in the request.
        limit = message.reconsume_times if delay_level == DEAD_LETTER else self.max_reconsume_times
        return SendMessageRequestHeaderV2(
            producer_group=CLIENT_INNER_PRODUCER_GROUP,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,  # the body is sent uncompressed
            born_timestamp=wall_ms(),
            flag=message.flag,
            properties=properties.encode(known).decode(),
            reconsume_times=message.reconsume_times + 1,
            max_reconsume_times=limit,
            bname=queue.broker_name,
        )
