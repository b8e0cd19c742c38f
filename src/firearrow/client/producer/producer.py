"""The producer.

    async with Producer("127.0.0.1:9876", group="orders") as producer:
        result = await producer.send(Message("Orders", b"hello", tags="new", keys=["A1"]))

Every send is one object in `InFlightSends`; `send` waits for it, `send_nowait` returns a future, so that thousands can be in
flight without a task each. The route of a topic is looked up at its first message; messages sent meanwhile keep their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Unpack

from firearrow.client.compression import compressor
from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.connection.pool import closed_error
from firearrow.client.errors import ClientError, InvalidMessageError, NoRouteError, RequestTimeout
from firearrow.client.hooks import MessageKind, SendContext, SendHook, call_hooks
from firearrow.client.lifecycle import AsyncClient
from firearrow.client.message import Message, MessageQueue, ReceivedMessage, SendResult
from firearrow.client.namespaces import with_namespace
from firearrow.client.options import (
    ClientKeywords,
    Duration,
    NameServers,
    client_options,
    document_keywords,
    milliseconds,
    seconds,
)
from firearrow.client.producer import message_ids
from firearrow.client.producer.batches import PartialBatchError, results_of, split_into_batches
from firearrow.client.producer.delay import When, delay_properties, for_version
from firearrow.client.producer.in_flight import InFlightSends, SendAttempt, SendPolicy
from firearrow.client.producer.recall import parse_recall_handle
from firearrow.client.producer.request_reply import reply_message, request_properties
from firearrow.client.producer.routing import BATCH, SINGLE, RouteCache, Selector, Sender, Target, TopicRouting, by_sharding_key
from firearrow.client.producer.validation import check_body, check_group_name, properties_text
from firearrow.client.trace.hook import Trace
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader, RecallMessageRequestHeader
from firearrow.wire.properties import PROPERTY_INSTANCE_ID, PROPERTY_SHARDING_KEY

log = logging.getLogger("firearrow.client")

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"
MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024
COMPRESS_OVER: Final = 4096
SEND_TIMEOUT_S: Final = 3.0
IDEMPOTENT_IN_FLIGHT: Final = 200  # a broker remembers the last 256 numbers per producer and queue

_now_ns = time.time_ns


class Producer(AsyncClient):
    """Producer of messages. Its methods belong to the event loop on which `start` ran."""

    @document_keywords
    def __init__(
        self,
        name_server: NameServers = None,
        *,
        group: str = DEFAULT_GROUP,
        send_timeout: Duration = SEND_TIMEOUT_S,
        retries: int = 2,
        attempt_timeout: Duration | None = None,
        compress_over: int = COMPRESS_OVER,
        compression: str = "zlib",
        max_message_size: int = MAX_MESSAGE_SIZE,
        latency_fault: bool = False,
        retry_unless_ok: bool = False,
        idempotent: bool = False,
        max_in_flight: int = 10_000,
        max_in_flight_bytes: int = 64 * 1024 * 1024,
        hooks: Sequence[SendHook] = (),
        **client: Unpack[ClientKeywords],
    ) -> None:
        """Create a producer; it connects in `start`.

        group                     the producer group, known to brokers for transactions and in statistics
        send_timeout              for all attempts of one send together (3 s)
        retries                   attempts after the first when a broker rejects a message; on another broker if one exists.
                                  While brokers cannot be reached, attempts continue until `send_timeout` expires
        attempt_timeout           for one attempt; default: the remaining time
        compress_over             compress bodies of at least this many bytes
        compression               zlib, lz4 or zstd
        max_message_size          the largest body in bytes, before compression
        latency_fault             temporarily avoid slow or failed brokers
        retry_unless_ok           try another broker also if a broker stored the message with a status other than OK
        idempotent                number the messages, so that a Firearrow broker stores each of them once even if it is sent
                                  repeatedly; retries stay on one queue
        max_in_flight             sends in flight at once; further sends wait
        max_in_flight_bytes       the same limit for their bodies
        hooks                     `SendHook` objects called before and after every send
        """
        check_group_name(group)
        for name, value, low in (
            ("retries", retries, 0), ("compress_over", compress_over, 1), ("max_message_size", max_message_size, 1),
            ("max_in_flight", max_in_flight, 1), ("max_in_flight_bytes", max_in_flight_bytes, 1),
        ):  # fmt: skip
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise ValueError(f"{name} is {value!r}, expected a number of at least {low}")
        self.options = client_options(name_server, **client)
        self.group = with_namespace(group, self.options.namespace)
        self._send_timeout_s = seconds("send_timeout", send_timeout)
        self.retries = retries
        self.max_message_size = max_message_size
        self.hooks: list[SendHook] = list(hooks)
        self._compress_over = compress_over
        self._plain_below = min(compress_over, max_message_size + 1)  # smaller bodies need neither a check nor compression
        self._compress, self._compressed_flag = compressor(compression)
        attempt_timeout_s = None if attempt_timeout is None else seconds("attempt_timeout", attempt_timeout)
        if idempotent:
            attempt_timeout_s = attempt_timeout_s or self._send_timeout_s / 3
            max_in_flight = min(max_in_flight, IDEMPOTENT_IN_FLIGHT)
        self._idempotent = idempotent
        self._policy = SendPolicy(
            attempt_timeout_s, retry_unless_ok, idempotent, latency_fault, max_in_flight, max_in_flight_bytes
        )
        self._namespace_properties = {PROPERTY_INSTANCE_ID: self.options.namespace} if self.options.namespace else {}
        self._adds = idempotent or bool(self.options.namespace)
        self._sequence = 0
        self._instance: ClientInstance | None = None
        self._sending: InFlightSends | None = None

    # ---- lifecycle

    async def start(self) -> None:
        """Prepare the producer; connections are opened on demand. Does nothing if the producer is already started."""
        if self._sending is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._instance = instance = await acquire(self.options, producer_group=self.group)
        self._trace = Trace(self.options, self.group, "PRODUCE") if self.options.trace else None
        self._hooks: tuple[SendHook, ...] = (*self.hooks, self._trace) if self._trace is not None else tuple(self.hooks)
        sender = Sender(self.group, self.options.language, instance.connections.signer)
        routes = RouteCache(instance, sender, self.options.namespace)
        self._next_id = message_ids.id_generator(instance.ip)
        self._producer_id = f"{instance.client_id}-{uuid.uuid4().hex[:12]}"[-128:]
        self._sending = InFlightSends(instance.connections, routes, self._hooks, self._policy)
        await instance.register_producer(self.group, self)
        log.info("producer %s started as %s", self.group, instance.client_id)

    async def close(self) -> None:
        """Wait for the sends in flight, unregister from the brokers and close. Does nothing if the producer is already closed."""
        sending, instance = self._sending, self._instance
        if sending is None or instance is None:
            return
        await sending.routes.settled(self._send_timeout_s)
        await sending.idle(self._send_timeout_s)
        self._sending = None
        sending.cancel_all("the producer was closed before the message could be sent")
        if self._trace is not None:
            await self._trace.close()
        sending.routes.close()
        await instance.unregister_producer(self.group)
        await instance.release()
        self._instance = None

    # ---- sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        delay: Duration | None = None,
        delay_level: int | None = None,
        deliver_at: When | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send a message and return its position.

        `queue`, `selector` (called with all queues and the message) or `sharding_key` choose the queue. `delay`, `delay_level`
        (1 to 18) or `deliver_at` (a datetime or seconds since 1970) delay the delivery. `timeout` replaces `send_timeout`.
        """
        extra = None
        if delay is not None or delay_level is not None or deliver_at is not None:
            extra = delay_properties(delay, delay_level, deliver_at)
            if delay_level is None:
                extra = for_version(extra, await self._oldest_version(message.topic))
        return await self._start_send(message, queue, selector, sharding_key, extra, timeout)

    def send_nowait(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        delay: Duration | None = None,
        delay_level: int | None = None,
        deliver_at: When | None = None,
        timeout: Duration | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send a message without waiting; the future has the result. An invalid message raises at once.

        Messages for one queue are sent in the order of the calls. In asyncio a fast sender awaits `wait_for_capacity` in between.
        """
        extra = None
        if delay is not None or delay_level is not None or deliver_at is not None:
            extra = delay_properties(delay, delay_level, deliver_at)
        return self._start_send(message, queue, selector, sharding_key, extra, timeout)

    async def wait_for_capacity(self) -> None:
        """Wait until fewer than `max_in_flight` messages are in flight."""
        sending = self._running()
        await sending.routes.settled()
        await sending.wait_for_capacity()

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message without a response from the broker."""
        targets = await self._running().routes.get(message.topic)
        extra = {PROPERTY_SHARDING_KEY: sharding_key} if sharding_key else None
        target = self._target(targets, message, queue, selector, sharding_key)
        body, sys_flag = self._body(message)
        now_ms = _now_ns() // 1_000_000
        msg_id = self._next_id(now_ms)
        properties = properties_text(message, msg_id, self._added(extra))
        hooked: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._hooks:
            fixed = queue is not None or selector is not None or sharding_key is not None
            hooked = self._hooked_oneway(self._context([message], target, msg_id, now_ms, len(body), fixed=fixed))
        with hooked:
            channel = await self._known().connections.get(target.address)
            template = target.template(SINGLE, oneway=True)
            channel.write(template.frame(sys_flag, now_ms, message.flag, properties, channel.take_opaque(), body))
            await channel.wait_for_capacity()

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout: Duration | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their size allows; return one result per message, in order.

        The messages of one request go to one queue. PartialBatchError has the results so far if a later request fails.
        """
        sending = self._running()
        messages = list(messages)
        extra = {PROPERTY_SHARDING_KEY: sharding_key} if sharding_key else None
        batches = split_into_batches(
            messages, self.max_message_size, lambda: self._next_id(_now_ns() // 1_000_000), lambda: self._added(extra) or {}
        )
        targets = await sending.routes.get(messages[0].topic)
        results: list[SendResult] = []
        for batch in batches:
            target = self._target(targets, batch.messages[0], queue, selector, sharding_key)
            fixed = queue is not None or selector is not None or sharding_key is not None
            ids = ",".join(batch.msg_ids)
            wait = f"WAIT\x01{'true' if messages[0].wait_store else 'false'}\x02"
            now_ms = _now_ns() // 1_000_000
            send = self._new_send(targets, target, batch.body, wait, ids, 0, 0, fixed, timeout, now_ms)
            send.code = BATCH
            if self._hooks:
                send.context = self._context(batch.messages, target, ids, now_ms, len(batch.body))
            sending.start(send)
            try:
                results += results_of(len(batch.messages), await send.future)
            except Exception as error:
                if not results:
                    raise
                raise PartialBatchError(results, len(messages), error) from error
        return results

    async def request(
        self,
        message: Message,
        *,
        timeout: Duration = SEND_TIMEOUT_S,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
    ) -> ReceivedMessage:
        """Send a request message and return the reply of its consumer (`reply`). RequestTimeout if no reply arrives in time."""
        instance = self._known()
        await self._running().routes.get(message.topic)
        await instance.ensure_known_to_brokers()
        correlation_id = str(uuid.uuid4())
        reply = instance.replies.expect(correlation_id)
        timeout_s = seconds("timeout", timeout)
        extra = request_properties(correlation_id, instance.client_id, milliseconds("timeout", timeout))
        try:
            async with asyncio.timeout(timeout_s):
                await self._start_send(message, queue, selector, sharding_key, extra, timeout)
                return await reply
        except TimeoutError as error:
            if isinstance(error, RequestTimeout):
                raise
            raise RequestTimeout(
                f"no reply to the request {correlation_id} to {message.topic!r} within {timeout_s:g} s; "
                "check that a consumer of the topic calls `reply` in time"
            ) from None
        finally:
            instance.replies.forget(correlation_id)

    async def reply(self, request: ReceivedMessage, body: bytes, *, timeout: Duration | None = None) -> SendResult:
        """Reply to a message that was sent with `request`."""
        message, extra = reply_message(request, body)
        sending = self._running()
        targets = await sending.routes.get(message.topic, full_name=message.topic)
        here = [target for target in targets.targets if target.broker_name == request.queue.broker_name]
        target = here[0] if here else sending.choose(targets)
        send = self._prepare(targets, target, message, extra, False, timeout)
        send.code = RequestCode.SEND_REPLY_MESSAGE_V2
        sending.start(send)
        return await send.future

    async def recall(self, handle: str | SendResult) -> str:
        """Recall a delayed message before its delivery, by the `recall_handle` of its result. Return the message id."""
        text = handle.recall_handle if isinstance(handle, SendResult) else handle
        if not text:
            raise InvalidMessageError(
                "this result has no recall handle: only messages sent with `delay` or `deliver_at` to a 5.x broker have one"
            )
        found = parse_recall_handle(text)
        instance = self._known()
        await instance.route(found.topic)
        address = instance.broker_address(found.broker_name, only_this=True)
        if address is None:
            raise ClientError(f"the broker {found.broker_name!r} of the recall handle is not in any route; is it stopped?")
        header = RecallMessageRequestHeader(
            producer_group=self.group, topic=found.topic, recall_handle=text, bname=found.broker_name
        )
        answer = await instance.check(address[0], header, timeout_ms=round(self._send_timeout_s * 1000))
        return str(answer.ext.get("msgId", found.msg_id))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic."""
        return list((await self._running().routes.get(topic)).queues)

    # ---- ProducerMember, called by the instance

    def topics(self) -> set[str]:
        return self._sending.routes.full_names() if self._sending is not None else set()

    def route_changed(self, topic: str) -> None:
        if self._sending is not None:
            self._sending.routes.route_changed(topic)

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        log.warning("%s checks transaction %s, but this is not a TransactionProducer", address, header.transaction_id)

    # ---- internals

    def _start_send(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
        sharding_key: str | None,
        extra: dict[str, str] | None,
        timeout: Duration | None,
    ) -> asyncio.Future[SendResult]:
        sending = self._sending
        if sending is None:
            raise closed_error("producer")
        targets = sending.topics.get(message.topic)
        if targets is None:
            return self._when_routed(
                message, timeout, lambda left_s: self._start_send(message, queue, selector, sharding_key, extra, left_s)
            )
        if queue is None and selector is None and sharding_key is None:
            target, fixed = sending.choose(targets), False
        else:
            target, fixed = self._target(targets, message, queue, selector, sharding_key), True
            if sharding_key is not None:
                extra = {**(extra or {}), PROPERTY_SHARDING_KEY: sharding_key}
        send = self._prepare(targets, target, message, extra, fixed, timeout)
        sending.start(send)
        return send.future

    def _prepare(
        self,
        targets: TopicRouting,
        target: Target,
        message: Message,
        extra: dict[str, str] | None,
        fixed: bool,
        timeout: Duration | None,
    ) -> SendAttempt:
        body, sys_flag = message.body, 0
        if body.__class__ is not bytes or not 0 < len(body) < self._plain_below:
            body, sys_flag = self._body(message)
        now_ms = _now_ns() // 1_000_000
        msg_id = self._next_id(now_ms)
        if self._adds:
            extra = self._added(extra)
        properties = properties_text(message, msg_id, extra)
        send = self._new_send(targets, target, body, properties, msg_id, message.flag, sys_flag, fixed, timeout, now_ms)
        if self._hooks:
            send.context = self._context([message], target, msg_id, now_ms, len(body), extra, fixed)
        return send

    def _new_send(
        self,
        targets: TopicRouting,
        target: Target,
        body: bytes,
        properties: str,
        msg_id: str,
        flag: int,
        sys_flag: int,
        fixed: bool,
        timeout: Duration | None,
        now_ms: int,
    ) -> SendAttempt:
        if self._sending is None:
            raise closed_error("producer")
        loop = self._loop
        end = loop.time() + (self._send_timeout_s if timeout is None else seconds("timeout", timeout))
        return SendAttempt(
            self._sending, loop.create_future(), targets, target, body, properties, msg_id, flag, sys_flag,
            now_ms, end, not fixed, self.retries,
        )  # fmt: skip

    def _body(self, message: Message) -> tuple[bytes, int]:
        """Return the body to send, compressed if it is large, and the system flags of the compression."""
        check_body(message, self.max_message_size)
        body = bytes(message.body)
        if len(body) >= self._compress_over:
            compressed = self._compress(body)
            if len(compressed) < len(body):
                return compressed, self._compressed_flag
        return body, 0

    def _added(self, extra: dict[str, str] | None) -> dict[str, str] | None:
        """Return the properties that the producer adds to a message, merged with `extra`."""
        if not self._idempotent:
            return {**(extra or {}), **self._namespace_properties} if self._namespace_properties else extra
        self._sequence += 1
        own = {"__PRODUCER_ID": self._producer_id, "__PRODUCER_SEQ": str(self._sequence)}
        return {**(extra or {}), **self._namespace_properties, **own}

    def _target(
        self,
        targets: TopicRouting,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
        sharding_key: str | None,
    ) -> Target:
        if (queue is not None) + (selector is not None) + (sharding_key is not None) > 1:
            raise InvalidMessageError("queue, selector and sharding_key exclude each other: pass one of them")
        if queue is not None:
            return targets.of_queue(queue)
        if selector is not None:
            return targets.of_queue(selector(list(targets.queues), message))
        if sharding_key is not None:
            if not sharding_key or "\x01" in sharding_key or "\x02" in sharding_key:
                raise InvalidMessageError(
                    f"sharding_key is {sharding_key!r}, expected a non-empty string without U+0001 and U+0002"
                )
            return targets.targets[by_sharding_key(len(targets.targets), sharding_key)]
        return self._running().choose(targets)

    def _context(
        self,
        messages: Sequence[Message],
        target: Target,
        msg_id: str,
        began_ms: int,
        body_size: int,
        extra: dict[str, str] | None = None,
        fixed: bool = False,
    ) -> SendContext:
        kind = MessageKind.NORMAL
        if extra and "TRAN_MSG" in extra:
            kind = MessageKind.TRANSACTION_HALF
        elif extra and any(name == "DELAY" or name.startswith("TIMER_") for name in extra):
            kind = MessageKind.DELAY
        elif fixed:
            kind = MessageKind.ORDER
        return SendContext(self.group, messages, target.queue, target.address, msg_id, kind, began_ms, body_size)

    @contextlib.contextmanager
    def _hooked_oneway(self, context: SendContext) -> Iterator[None]:
        """Call the hooks around a one-way send; it has no result."""
        try:
            for hook in self._hooks:
                hook.before_send(context)
            yield
        except Exception as error:
            context.error = error
            raise
        finally:
            context.elapsed_ms = _now_ns() / 1_000_000 - context.began_ms
            call_hooks([hook.after_send for hook in self._hooks], context)

    def _when_routed(
        self, message: Message, timeout: Duration | None, start: Callable[[float], asyncio.Future[SendResult]]
    ) -> asyncio.Future[SendResult]:
        """Call `start` with the remaining time as soon as the route of the topic is known."""
        check_body(message, self.max_message_size)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SendResult] = loop.create_future()
        began = loop.time()
        timeout_s = self._send_timeout_s if timeout is None else seconds("timeout", timeout)

        def expired() -> None:
            if not future.done():
                servers = "; ".join(self.options.name_servers)
                future.set_exception(RequestTimeout(f"no route to the topic {message.topic!r} from {servers} in time"))

        timer = loop.call_later(timeout_s, expired)

        def routed(targets: TopicRouting | None, error: Exception | None) -> None:
            timer.cancel()
            if future.done():
                return
            if targets is None:
                future.set_exception(error or NoRouteError(message.topic))
                return
            left_s = max(0.001, timeout_s - (loop.time() - began))
            try:
                send = start(left_s)
            except Exception as invalid:  # noqa: BLE001 (raised to the caller by the future)
                future.set_exception(invalid)
            else:
                send.add_done_callback(lambda done: _copy_outcome(done, future))
                future.add_done_callback(lambda done: send.cancel() if done.cancelled() else None)

        self._running().routes.request(message.topic, routed)
        return future

    async def _oldest_version(self, topic: str) -> int:
        """Return the version of the topic's oldest broker, 0 if one is unknown."""
        targets = await self._running().routes.get(topic)
        instance = self._known()
        addresses = {target.address for target in targets.targets}
        if any(not instance.broker_version(address) for address in addresses):
            await instance.heartbeat_now()
        return min(instance.broker_version(address) for address in addresses)

    def _running(self) -> InFlightSends:
        if self._sending is None:
            raise closed_error("producer")
        return self._sending

    def _known(self) -> ClientInstance:
        if self._instance is None:
            raise closed_error("producer")
        return self._instance


def _copy_outcome(done: asyncio.Future[SendResult], future: asyncio.Future[SendResult]) -> None:
    if future.done():
        return
    if done.cancelled():
        future.cancel()
        return
    error = done.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())
