"""Message trace: a hook that records sends, consumptions and transaction outcomes in the trace topic.

Contexts (encoding.py) are queued in memory and sent every half second, in as few messages as possible, by a separate producer. If
that fails or the queue is full, contexts are dropped and a warning is logged; the traced messages are not affected.

A client with `trace=True` creates its hook when it starts and closes it at the end, which sends the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from firearrow.client.hooks import ConsumeContext, EndTransactionContext, MessageKind, SendContext
from firearrow.client.lifecycle import repeat
from firearrow.client.message import Message, ReceivedMessage, SendStatus
from firearrow.client.namespaces import without_namespace
from firearrow.client.options import ClientOptions
from firearrow.client.producer import message_ids
from firearrow.client.trace.encoding import DEFAULT_REGION, Context, Outcome, encode
from firearrow.clock import wall_ms
from firearrow.wire.properties import PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH

if TYPE_CHECKING:
    from firearrow.client.producer.producer import Producer

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
INTERVAL_MS: Final = 500
MAX_WAITING: Final = 2_048
MAX_BODY_BYTES: Final = 128_000
MAX_KEYS_BYTES: Final = 16_000  # all properties of a message together may have 32,767
CLOSE_TIMEOUT_MS: Final = 3_000

log = logging.getLogger("firearrow.client")
_numbers = itertools.count(1)


class Trace:
    """The hook of one client."""

    def __init__(self, options: ClientOptions, group: str, side: Literal["PRODUCE", "CONSUME"]) -> None:
        self._options = options
        self._namespace = options.namespace
        self._group = without_namespace(group, options.namespace)
        self._topic = options.trace_topic
        self._own_group = f"{GROUP_PREFIX}-{self._group}-{side}-{next(_numbers)}"
        self.waiting: deque[Context] = deque()  # recorded and not yet sent
        self._requests: dict[int, str] = {}  # id of a ConsumeContext -> request id
        self._dropped = 0
        self._producer: Producer | None = None
        self._task = asyncio.get_running_loop().create_task(repeat(INTERVAL_MS, self._send_waiting), name=f"trace {group}")

    async def close(self) -> None:
        """Send the queued contexts within CLOSE_TIMEOUT_MS and close."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self._send_waiting()
        if self._producer is not None:
            await self._producer.close()

    # Events.

    def before_send(self, context: SendContext) -> None:
        """Do nothing: a send is recorded with its outcome."""

    def after_send(self, context: SendContext) -> None:
        result = context.result
        if result is None or not result.trace_on or result.region_id is None:
            return  # like Apache's clients: sends that no broker accepted are not traced
        ids, offset_ids = result.msg_id.split(","), result.offset_msg_id.split(",")
        single = len(ids) != len(context.messages)
        for index, message in enumerate(context.messages[:1] if single else context.messages):
            one_each = not single and len(offset_ids) == len(ids)
            self._record(
                "Pub",
                message,
                time_ms=context.began_ms,
                region=result.region_id,
                topic=without_namespace(message.topic, self._namespace),
                msg_id=result.msg_id if single else ids[index],
                address=context.address,
                body_length=len(message.body),
                cost_ms=round(context.elapsed_ms),
                kind=context.kind,
                offset_msg_id=offset_ids[index] if one_each else result.offset_msg_id,
                success=result.status is SendStatus.OK,
            )

    def end_transaction(self, context: EndTransactionContext) -> None:
        message = context.message
        region = message.get(PROPERTY_MSG_REGION) if isinstance(message, ReceivedMessage) else None
        self._record(
            "EndTransaction",
            message,
            time_ms=wall_ms(),
            region=region or DEFAULT_REGION,
            topic=without_namespace(context.topic, self._namespace),
            msg_id=context.msg_id,
            address=context.address,
            kind=MessageKind.TRANSACTION_COMMIT,
            transaction_id=context.transaction_id,
            state=context.state,
            from_check=context.from_check,
        )

    def before_consume(self, context: ConsumeContext) -> None:
        traced = [message for message in context.messages if message.get(PROPERTY_TRACE_SWITCH) != "false"]
        if not traced:
            return
        request_id = self._requests[id(context)] = message_ids.next_key(self._options.client_ip or message_ids.own_ip())
        for message in traced:
            self._record(
                "SubBefore",
                message,
                time_ms=context.began_ms,
                region=message.get(PROPERTY_MSG_REGION),
                request_id=request_id,
                msg_id=message.msg_id,
                retries=message.reconsume_times,
            )

    def after_consume(self, context: ConsumeContext) -> None:
        request_id = self._requests.pop(id(context), None)
        if request_id is None:
            return
        now_ms = wall_ms()
        for message in context.messages:
            if message.get(PROPERTY_TRACE_SWITCH) == "false":
                continue
            self._record(
                "SubAfter",
                message,
                time_ms=now_ms,
                request_id=request_id,
                msg_id=message.msg_id,
                cost_ms=round(context.elapsed_ms / len(context.messages)),
                success=context.succeeded,
                outcome=_outcome(context),
            )

    # Sending.

    def _record(self, name: str, message: Message | ReceivedMessage, **values: object) -> None:
        if len(self.waiting) < MAX_WAITING:
            keys = (message.keys if isinstance(message.keys, str) else " ".join(message.keys)) or None
            self.waiting.append(encode(name, group=self._group, tags=message.tags, keys=keys, **values))
        else:
            self._dropped += 1

    async def _send_waiting(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            log.warning("%d traces of group %s were dropped: the queue was full", dropped, self._group)
        if not self.waiting:
            return
        waiting = [self.waiting.popleft() for _ in range(len(self.waiting))]
        try:
            producer = await self._started()
            for message in pack(self._topic, waiting):
                await producer.send(message)
        except Exception as error:  # noqa: BLE001 (no error of a trace may reach the application)
            log.warning("sending traces of group %s to %s failed: %s", self._group, self._topic, error)

    async def _started(self) -> Producer:
        if self._producer is None:
            from firearrow.client.producer.producer import Producer  # circular import

            plain = replace(self._options, trace=False)
            producer = Producer(plain.name_servers, group=self._own_group, **plain.keywords())
            await producer.start()
            self._producer = producer
        return self._producer


def pack(topic: str, contexts: list[Context]) -> Iterator[Message]:
    """Pack contexts into as few messages as the limits allow."""
    texts: list[str] = []
    keys: dict[str, None] = {}
    body_bytes = keys_bytes = 0
    for context in contexts:
        more_body, more_keys = len(context.text.encode()), sum(len(key.encode()) + 1 for key in context.keys)
        if texts and (body_bytes + more_body > MAX_BODY_BYTES or keys_bytes + more_keys > MAX_KEYS_BYTES):
            yield Message(topic, "".join(texts).encode(), keys=list(keys))
            texts, keys, body_bytes, keys_bytes = [], {}, 0, 0
        texts.append(context.text)
        keys.update(dict.fromkeys(context.keys))
        body_bytes += more_body
        keys_bytes += more_keys
    yield Message(topic, "".join(texts).encode(), keys=list(keys))


def _outcome(context: ConsumeContext) -> Outcome:
    if context.timed_out:
        return Outcome.TIME_OUT
    if context.error is not None:
        return Outcome.EXCEPTION
    return Outcome.SUCCESS if context.succeeded else Outcome.FAILED
