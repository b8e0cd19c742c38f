"""Send requests (10, 310, 320): validation, append, reply.

A request is validated, its record is appended, and its reply is built at once: queue, offset and message id are known as soon as
the record has its position in the log. The reply then waits in `PendingReplies` for the group commit (group_commit.py).

    request --validate--> record in the store's pending group --+--> written --> flushed, replicated --> reply sent
                          reply in `PendingReplies` ------------+

This is the hottest code of the broker. A topic is authorized once and then cached as a `SendTarget` until it changes.
Properties are searched, not parsed. The reply is formatted with one `%` on bytes.

The broker adds these properties to a single message: UNIQ_KEY if the client sent none, MSG_REGION, TRACE_ON and CLUSTER. The
messages of a batch are stored with the properties they came with.
"""

from __future__ import annotations

import os
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import orjson

from firearrow.broker.context import BrokerContext
from firearrow.broker.dedup.dedup import PASSED_ON, Dedup, StoredResult
from firearrow.broker.deferred.retry import redirect
from firearrow.broker.message import BrokerMessage
from firearrow.broker.observability.stats import SMALL
from firearrow.broker.requests.registered_replies import hold_replies
from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.replies import PendingReplies, quick_reply
from firearrow.broker.send.validation import PLAIN_FLAGS, SUSPICIOUS, check, check_batch, stored_flags
from firearrow.net.server import Connection
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.wire import batch, properties
from firearrow.wire.bodies.topic import TopicConfig
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, encode_response, pack_lengths, send_response_template
from firearrow.wire.headers.client import SendMessageRequestHeader
from firearrow.wire.java_hash import tags_code_of
from firearrow.wire.message_ids import UniqueKeys, host_bytes
from firearrow.wire.names import NOT_SENDABLE_TOPICS, RETRY_PREFIX

if TYPE_CHECKING:
    from firearrow.broker.transaction.service import Transactions

PERM_WRITE = 2
MAX_PROPERTIES = properties.MAX_BYTES

_NOT_PLAIN = ~PLAIN_FLAGS
_COMMON_BATCH = 256  # messages; templates for larger batches are not cached: a batch may have 190,000 messages


def _waits(raw: bytes) -> bool:
    """Return whether the producer waits for the acknowledgement (property WAIT, true by default) and not only for the write.

    The producer of a half message always does: its decision may follow at once, and is rejected before the half can be read.
    """
    return properties.find(raw, b"WAIT") != b"false" or properties.find(raw, b"TRAN_MSG") is not None


def _too_long(raw: bytes) -> Refused:
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message is illegal: its properties take {len(raw)} bytes, the limit is {MAX_PROPERTIES}; "
        "send fewer or shorter ones",
    )


class SendTarget:
    """A topic that is authorized for sends. Valid until the topic changes."""

    __slots__ = ("config", "for_retries", "put", "queues", "write_queues")

    def __init__(self, config: TopicConfig, context: BrokerContext) -> None:
        ids = max(config.read_queue_nums, config.write_queue_nums)
        self.config = config
        self.queues: list[ConsumeQueue | None] = [None] * ids  # index = queue id; looked up at the queue's first message
        self.write_queues = config.write_queue_nums
        self.put = context.stats.topic_put(config.topic_name)
        self.for_retries = config.topic_name.startswith(RETRY_PREFIX)


class SendHandler:
    def __init__(self, context: BrokerContext, transactions: Transactions, replies: PendingReplies) -> None:
        self._replies = replies
        self._rng = context.rng
        self.dedup = Dedup(context.settings, context.store)
        self._key_dedup = self.dedup.keys is not None
        self._context = context
        self._store = context.store
        self._transactions = transactions
        self._targets: dict[str, SendTarget] = {}
        self._store_settings = context.store_settings  # maxMessageSize may be changed while the broker runs
        region = context.settings.region_id
        self._trace = "true" if context.settings.trace_on else "false"
        stamps = {"MSG_REGION": region, "TRACE_ON": self._trace, "CLUSTER": context.settings.broker_cluster_name}
        self._stamps = stamps
        self._stamp_block = properties.encode(stamps)
        self._reply = send_response_template(self._trace, region)
        ip, _, port = context.address.rpartition(":")
        self._unique_keys = UniqueKeys(ip, os.getpid())
        self._msg_id = host_bytes(ip, int(port)).hex().upper().encode() + b"%016X"
        self._common_batch_ids = lru_cache(maxsize=_COMMON_BATCH)(self._batch_ids)

    def _batch_ids(self, count: int) -> bytes:
        """Return the template for the ids of a batch."""
        return b",".join([self._msg_id] * count)

    def invalidate_targets(self) -> None:
        """Invalidate the cached send targets after a configuration change."""
        self._targets.clear()

    def enable_key_dedup(self, window_ms: int) -> bool:
        """Recognise repeated messages by their unique keys. False if the settings do that permanently."""
        if self._context.settings.deduplicate_uniq_key_window_ms:
            return False
        self.dedup.enable_keys(window_ms, self._context.settings.deduplicate_uniq_key_max_num)
        self._key_dedup = True
        return True

    def disable_key_dedup(self) -> None:
        if not self._context.settings.deduplicate_uniq_key_window_ms:
            self.dedup.disable_keys()
            self._key_dedup = False

    def reset_dedup(self) -> None:
        """Forget all messages: those that were not confirmed may be lost."""
        self.dedup = Dedup(self._context.settings, self._store)

    def topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        """Invalidate the cached target of a topic that was changed or deleted."""
        self._targets.pop(topic, None)
        if config is None:
            self.dedup.forget(topic)

    def send(self, conn: Connection, request: Command, now_ms: int) -> None:
        """Append the messages of a request and queue its reply. Raises Refused or HeaderError if nothing was appended."""
        header = request.header or SendMessageRequestHeader.decode(request.ext)
        target = self._targets.get(header.topic)
        if target is None:
            before = self._context.topics.data_version
            target = self._authorize(header, now_ms)
            if self._context.topics.data_version is not before:
                conn = hold_replies(self._context, conn)
        if target.for_retries and not header.batch and redirect(self._context, header, request.version, now_ms):
            target = self._targets.get(header.topic) or self._authorize(header, now_ms)
        queue = self._choose_queue(target, header.queue_id)
        if header.batch:
            self._send_batch(conn, request, header, target, queue, now_ms)
        else:
            self._send_one(conn, request, header, target, queue, now_ms)

    def _send_one(
        self,
        conn: Connection,
        request: Command,
        header: SendMessageRequestHeader,
        target: SendTarget,
        queue: ConsumeQueue,
        now_ms: int,
    ) -> None:
        body = request.body
        if not body:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the message has no body; send at least one byte")
        if len(body) > self._store_settings.max_message_size:
            raise self._too_large(len(body))
        raw = header.properties.encode()
        if raw.find(b"MSG_REGION\x01") >= 0 or raw.find(b"POP_CK\x01") >= 0:  # `in` is slower
            raw = self._without_stamps(raw)
        sent = raw  # as sent by the client: shorter to search
        if raw and raw[-1] != 2:
            raw += b"\x02"  # 4.9 clients leave the last separator out
        unique_key = properties.find(raw, b"UNIQ_KEY")
        if unique_key is None:
            unique_key = self._unique_keys.next(now_ms).encode()
            raw += b"UNIQ_KEY\x01%b\x02" % unique_key
        code = tags_code_of(raw)
        raw += self._stamp_block
        if len(raw) > MAX_PROPERTIES:
            raise _too_long(raw)
        sys_flag = header.sys_flag
        if sys_flag & _NOT_PLAIN:
            sys_flag = stored_flags(sys_flag)
        claim = None
        if sent.find(SUSPICIOUS) >= 0 or self._key_dedup or request.flag & PASSED_ON:
            claim = self.dedup.claim(queue, check(raw), unique_key, now_ms, passed_on=bool(request.flag & PASSED_ON))
            if claim is not None and claim.first is not None:
                self._answer_repeated(conn, request, raw, claim.first)
                return
        deferred = None
        # DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS have DEL in common. find() takes half the time of `in`.
        if sent.find(b"DEL") >= 0 or sent.find(b"TRAN_MSG\x01") >= 0:
            deferred = self._send_deferred(conn, header, queue.queue_id, body, raw, code, sys_flag, unique_key, now_ms)
        if deferred is not None:
            raw, more = deferred.properties, deferred.reply_fields
            queue_offset, offset = deferred.queue_offset, deferred.physical_offset
        else:
            more = None
            queue_offset = queue.next_offset
            offset = self._store.append(
                queue,
                body,
                raw,
                code,
                flag=header.flag,
                sys_flag=sys_flag,
                born_ms=header.born_timestamp,
                born_host=conn.peer_host,
                store_ms=now_ms,
                reconsume_times=header.reconsume_times,
            )
            put = target.put
            put.nums += 1
            size = queue.base_size + len(body) + len(raw)
            put.size += size
            if size > SMALL:
                put.larger(size)
        if claim is not None:
            self.dedup.stored(claim, StoredResult(queue.queue_id, queue_offset, offset, unique_key, now_ms, more))
        if request.flag & 2:
            return
        data = self._success(request, queue.queue_id, queue_offset, self._msg_id % offset, unique_key, more)
        conn.state.in_flight += 1  # like PendingReplies.add, without the call
        if raw.find(b"WAIT\x01false\x02") >= 0 and not _waits(raw):
            self._replies.on_write.append(quick_reply((conn, request, data)))
        else:
            self._replies.on_ack.append(quick_reply((conn, request, data)))

    def _send_deferred(
        self,
        conn: Connection,
        header: SendMessageRequestHeader,
        queue_id: int,
        body: bytes,
        raw: bytes,
        code: int,
        sys_flag: int,
        unique_key: bytes,
        now_ms: int,
    ) -> BrokerMessage | None:
        """Store a half message or a delayed message in its holding topic. None if the message is neither."""
        message = BrokerMessage(
            header.topic, queue_id, body, raw, header.flag, sys_flag, header.born_timestamp, conn.peer_host,
            header.reconsume_times, code, unique_key, False,
        )  # fmt: skip
        if not self._transactions.defer(message, now_ms) and not self._context.deferral.defer(message, now_ms):
            return None
        if len(message.properties) > MAX_PROPERTIES:
            raise _too_long(message.properties)
        self._context.writer.append(message, now_ms)
        if message.on_stored is not None:
            message.on_stored(message)
        return message

    def _send_batch(
        self,
        conn: Connection,
        request: Command,
        header: SendMessageRequestHeader,
        target: SendTarget,
        queue: ConsumeQueue,
        now_ms: int,
    ) -> None:
        if len(request.body) > self._store_settings.max_message_size:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"message body size exceeded: the batch has {len(request.body)} bytes, "
                f"maxMessageSize is {self._store_settings.max_message_size}; send smaller batches",
            )
        if header.topic.startswith(RETRY_PREFIX):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot be sent to the retry topic {header.topic}; send single messages"
            )
        if not request.body:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message; send at least one")
        raw = header.properties.encode()
        sys_flag = header.sys_flag
        check_batch(sys_flag, raw)
        if sys_flag & _NOT_PLAIN:
            sys_flag = stored_flags(sys_flag)
        queue_id, queue_offset = queue.queue_id, queue.next_offset
        passed_on = bool(request.flag & PASSED_ON)
        once = self._key_dedup or passed_on or b"__PRODUCER_" in request.body
        new = self.dedup.claim_new(queue, request.body) if once and not passed_on else None
        if once and new is None:
            results = self._append_once(conn, header, target, queue, request.body, sys_flag, now_ms, passed_on)
            queue_id, queue_offset = results[0].queue_id, results[0].queue_offset
            offsets = [result.physical_offset for result in results]
        else:
            offsets = self._store.append_batch_body(
                queue,
                request.body,
                sys_flag=sys_flag,
                born_ms=header.born_timestamp,
                born_host=conn.peer_host,
                store_ms=now_ms,
                reconsume_times=header.reconsume_times,
            )
            target.put.add(len(offsets), self._store.appended_offset - offsets[0])
            if new is not None:
                self.dedup.stored_new(new, queue, offsets, now_ms)
        if request.flag & 2:
            return
        unique_key = properties.find(raw, b"UNIQ_KEY") or b""
        count = len(offsets)
        template = self._common_batch_ids(count) if count <= _COMMON_BATCH else self._batch_ids(count)
        msg_ids = template % tuple(offsets)
        data = self._success(request, queue_id, queue_offset, msg_ids, unique_key)
        self._replies.add(conn, request, data, on_write=not _waits(raw))

    def _append_once(
        self,
        conn: Connection,
        header: SendMessageRequestHeader,
        target: SendTarget,
        queue: ConsumeQueue,
        body: bytes,
        sys_flag: int,
        now_ms: int,
        passed_on: bool,
    ) -> list[StoredResult]:
        """Append the messages of a batch that were not stored before. Return the results of all of them."""
        messages = [(flag, text, raw, tags_code_of(raw)) for flag, text, raw in batch.split(body)]
        keys = [properties.find(raw, b"UNIQ_KEY") or b"" for _, _, raw, _ in messages]
        sequences = [check(raw) for _, _, raw, _ in messages]
        numbered = [sequence for sequence in sequences if sequence is not None]
        if len(set(numbered)) < len(numbered):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch is illegal: it has the same __PRODUCER_SEQ twice")
        look = partial(self.dedup.claim, queue, now_ms=now_ms, passed_on=passed_on)
        claims = [look(sequence, key) for sequence, key in zip(sequences, keys, strict=True)]
        new = [message for message, claim in zip(messages, claims, strict=True) if claim is None or claim.first is None]
        queue_offset = queue.next_offset
        offsets = iter(
            self._store.append_batch(
                queue,
                new,
                sys_flag=sys_flag,
                born_ms=header.born_timestamp,
                born_host=conn.peer_host,
                store_ms=now_ms,
                reconsume_times=header.reconsume_times,
            )
        )
        target.put.add(len(new), sum(queue.base_size + len(text) + len(known) for _, text, known, _ in new))
        results = []
        for claim, key in zip(claims, keys, strict=True):
            if claim is not None and claim.first is not None:
                results.append(claim.first)
                continue
            result = StoredResult(queue.queue_id, queue_offset, next(offsets), key, now_ms)
            queue_offset += 1
            if claim is not None:
                self.dedup.stored(claim, result)
            results.append(result)
        return results

    def _answer_repeated(self, conn: Connection, request: Command, raw: bytes, first: StoredResult) -> None:
        """Answer a repeated send with the result of the first one, as soon as that is acknowledged."""
        if request.flag & 2:
            return
        msg_id = self._msg_id % first.physical_offset
        data = self._success(request, first.queue_id, first.queue_offset, msg_id, first.unique_key, first.more)
        self._replies.add(conn, request, data, on_write=not _waits(raw))

    def _success(
        self,
        request: Command,
        queue_id: int,
        queue_offset: int,
        msg_id: bytes,
        unique_key: bytes,
        more: dict[str, str] | None = None,
    ) -> bytes:
        if request.binary or more:
            ext: dict[str, str | int] = {"queueId": queue_id, "queueOffset": queue_offset, "msgId": msg_id.decode()}
            ext |= {"transactionId": unique_key.decode(), "TRACE_ON": self._trace, "MSG_REGION": self._stamps["MSG_REGION"]}
            return encode_response(request, ResponseCode.SUCCESS, None, ext | (more or {}))
        # Letters and digits need no escaping in JSON.
        quoted = b'"%b"' % unique_key if unique_key.isalnum() else orjson.dumps(unique_key.decode())
        header = self._reply % (queue_id, quoted, msg_id, queue_offset, request.opaque)
        return pack_lengths(4 + len(header), len(header)) + header

    def _authorize(self, header: SendMessageRequestHeader, now_ms: int) -> SendTarget:
        topic = header.topic
        if topic in NOT_SENDABLE_TOPICS:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic {topic} is the broker's own; clients cannot send to it")
        context = self._context
        config = context.topics.find(topic)
        if config is None:
            if topic.startswith(RETRY_PREFIX):
                context.groups.must_find(topic[len(RETRY_PREFIX) :], now_ms)
            config = context.topics.create_in_send(
                topic, header.default_topic, header.default_topic_queue_nums, now_ms, unit_mode=header.unit_mode
            )
        if not config.perm & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic {config.topic_name} has permission {config.perm} and takes no messages; "
                f"allow writing with: mqadmin updateTopicPerm -t {config.topic_name} -p 6",
            )
        target = self._targets[header.topic] = SendTarget(config, self._context)
        return target

    def _choose_queue(self, target: SendTarget, queue_id: int) -> ConsumeQueue:
        if queue_id < 0 and target.write_queues > 0:
            queue_id = self._rng.randrange(target.write_queues)
        if not 0 <= queue_id < len(target.queues):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id} is illegal for topic {target.config.topic_name}: it has {target.config.write_queue_nums} "
                f"write and {target.config.read_queue_nums} read queues; send to 0..{len(target.queues) - 1}",
            )
        queue = target.queues[queue_id]
        if queue is None:
            queue = target.queues[queue_id] = self._store.queue(target.config.topic_name, queue_id)
        return queue

    def _without_stamps(self, raw: bytes) -> bytes:
        """Remove the properties that the first broker of a forwarded message has added; this one adds its own.

        Other properties of these names may stay: of two properties of one name the last one counts.
        """
        kept = properties.parse(raw)
        for name in (*self._stamps, "POP_CK"):
            kept.pop(name, None)
        return properties.encode(kept)

    def _too_large(self, size: int) -> Refused:
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: its body has {size} bytes, maxMessageSize is {self._store_settings.max_message_size}; "
            "send less, or raise maxMessageSize",
        )
