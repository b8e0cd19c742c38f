"""Pull requests (11, 361): authorization, read, long polling.

A pull is served in three steps.
- Authorization of group, topic and queue (`_authorize`, cached as a `ReadTarget`), then of its subscription.
- Read (`_read`): the status of the store becomes a response code.
- If nothing was found, the pull is parked until a message arrives (long_polling.py). A parked pull is read once more when it is
  resumed, and then answered.

    store's status                                        code                        nextBeginOffset
    FOUND                                                 0   SUCCESS                 after the last inspected entry
    NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING              20  PULL_RETRY_IMMEDIATELY  after the last inspected entry
    OFFSET_OVERFLOW_ONE, OFFSET_FOUND_NULL                19  PULL_NOT_FOUND          the requested offset (parked first)
    NO_MESSAGE_IN_QUEUE, NO_MATCHED_LOGIC_QUEUE           19 at offset 0, else 21     0
    OFFSET_TOO_SMALL, OFFSET_OVERFLOW_BADLY               21  PULL_OFFSET_MOVED       the queue's min, its max
    OFFSET_RESET (an operator moved the group)            21  PULL_OFFSET_MOVED       the new offset

A slave answers 20 instead of 19 and 21 while its master is alive, after a short wait, so that the consumer asks the master. It
does the same for messages that are damaged in its own log. Elsewhere damaged messages are skipped: the response has the others,
or is 20 (MESSAGE_WAS_REMOVING), and nextBeginOffset is behind them.

A pull without an expression is filtered by the subscription of the group's heartbeats (tables/clients.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firearrow.broker.context import BrokerContext
from firearrow.broker.observability.stats import GroupGetStats
from firearrow.broker.pull import subscription
from firearrow.broker.pull.filtered import get_filtered
from firearrow.broker.pull.long_polling import LongPolling, ParkedPull
from firearrow.broker.requests.responses import Refused
from firearrow.net.connection import LARGE_RESPONSE
from firearrow.net.server import Connection
from firearrow.store.commitlog.reader import GetResult, GetStatus
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.wire.bodies.client import SubscriptionData
from firearrow.wire.bodies.topic import SubscriptionGroupConfig, TopicConfig
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, encode_pull_response
from firearrow.wire.headers.client import PullMessageRequestHeader

if TYPE_CHECKING:
    from firearrow.broker.sql92 import Filter

PERM_READ = 4
COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 0x1, 0x2, 0x4  # bits of a pull's sysFlag
MAX_SUSPEND_MS = 30_000  # some clients send nanoseconds
MAX_SUSPEND_AT_SLAVE_MS = 500  # answering at once would make a client that does not know the master yet ask in a tight loop

MAX_PARKED_FILTER_SIZE = 100_000  # nodes of distinct SQL92 filters; a compiled node takes about 450 bytes
_MAX_KEPT_TEXT = 256  # characters of a parked pull's header

_MAX_TARGETS = 100_000
_MAX_FILTERED = 32  # messages of one pull through an SQL92 filter, as for pulls near the end of the log

_BY_TAG = (None, "", subscription.TAG)

_INSPECTED = (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
_RETRY = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)
_NOT_FOUND = (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.OFFSET_FOUND_NULL)
_EMPTY = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


class ReadTarget:
    """A queue that a group may read. Valid until a topic, a group or the broker's permission changes."""

    __slots__ = ("got", "group", "group_sys_flag", "queue", "topic", "topic_sys_flag")

    def __init__(self, topic: TopicConfig, group: SubscriptionGroupConfig, queue: ConsumeQueue, got: GroupGetStats) -> None:
        self.topic = topic
        self.group = group
        self.queue = queue
        self.got = got
        self.topic_sys_flag = topic.topic_sys_flag
        self.group_sys_flag = group.group_sys_flag


@dataclass(slots=True)
class Pull:
    """An authorized pull."""

    conn: Connection
    request: Command
    header: PullMessageRequestHeader
    target: ReadTarget
    tag_codes: frozenset[int] | None
    sql: Filter | None
    offset: int  # where to read; advances while a parked pull skips messages that its filter does not select


class PullHandler:
    def __init__(self, context: BrokerContext, long_polling: LongPolling) -> None:
        self._context = context
        self._long_polling = long_polling
        self._store = context.store
        self._targets: dict[tuple[str, str, int], ReadTarget] = {}
        self._authorized_under: tuple[object, object, int] = (None, None, 0)  # versions of topics and groups, broker permission
        self._master_alive: Callable[[], bool] | None = None  # None: this broker is a master
        self.last_response_code = 0

    def serve_as_master(self) -> None:
        self._master_alive = None

    def serve_as_slave(self, master_alive: Callable[[], bool]) -> None:
        """Redirect consumers that find nothing to the master, as long as it is alive."""
        self._master_alive = master_alive

    def pull(self, conn: Connection, request: Command, now_ms: int) -> bytes | None:
        """Return the response; empty if it is sent already; None if the pull is parked."""
        header = request.header or PullMessageRequestHeader.decode(request.ext)
        target = self._target(conn, header, now_ms)
        sys_flag = header.sys_flag
        tag_codes, sql = None, None
        # The usual pull has the filter "everything": nothing to look up or to build.
        if not (sys_flag & SUBSCRIPTION and header.subscription == "*" and header.expression_type in _BY_TAG):
            wanted = self._subscription(header, target.group.consume_broadcast_enable)
            sql = self._sql(wanted)
            tag_codes = self._context.clients.tag_codes(header.consumer_group, wanted) if sql is None else None
        offsets = self._context.offsets
        reset = offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            return self._offset_moved(request, header, target, reset)
        if sys_flag & COMMIT_OFFSET:
            offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset, now_ms)
        may_be_part = conn.takes_files and not request.binary and not request.flag & 2
        result = self._read(target, header, header.queue_offset, tag_codes, sql, may_be_part)
        code = _code(result.status, header.queue_offset)
        max_ms = MAX_SUSPEND_MS
        if self._master_alive is not None and (code not in _INSPECTED or (result.damaged and self._master_alive())):
            code = ResponseCode.PULL_NOT_FOUND
            if self._master_alive():
                max_ms = MAX_SUSPEND_AT_SLAVE_MS
        if code == ResponseCode.PULL_NOT_FOUND and sys_flag & SUSPEND and not request.flag & 2:
            # Keep only what the response needs: the frame may be large.
            asked = Command(request.code, request.opaque, request.flag, binary=request.binary)
            pull = Pull(conn, asked, _without_texts(header), target, tag_codes, sql, header.queue_offset)
            self._park(pull, now_ms, max_ms)
            return None
        if self._master_alive is not None and code == ResponseCode.PULL_NOT_FOUND:
            code, result = self._not_here(result, header.queue_offset)
        if result.part is None:
            return self._response(request, header, target, code, result)
        descriptor, position, size = result.part
        conn.write_file(self._response(request, header, target, code, result), descriptor, position, size)
        return b""

    def resume(self, parked: ParkedPull) -> None:
        """Answer a parked pull: messages have arrived, or its time is up."""
        pull = parked.pull
        pull.conn.state.parked.discard(parked)
        if pull.conn.closed:
            return
        if pull.conn.must_wait:
            pull.conn.serve_later(pull.request)  # the response would only wait in memory: the request is served again later
            return
        header, target = pull.header, pull.target
        reset = self._context.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            pull.conn.write(self._offset_moved(pull.request, header, target, reset))
            return
        result = self._read(target, header, pull.offset, pull.tag_codes, pull.sql)
        code = _code(result.status, pull.offset)
        if self._master_alive is not None and (code not in _INSPECTED or (result.damaged and self._master_alive())):
            code, result = self._not_here(result, pull.offset)
        elif (
            code == ResponseCode.PULL_RETRY_IMMEDIATELY
            and not parked.expired
            and result.next_begin_offset >= target.queue.max_offset
        ):
            # The filter selects none of the new messages: park the pull behind them. If some are not inspected, the consumer
            # asks for them.
            pull.offset = result.next_begin_offset
            self._hold(pull, parked.deadline_ms)
            return
        pull.conn.write(self._response(pull.request, header, target, code, result))
        if len(result.body) > LARGE_RESPONSE:
            pull.conn.note_response(len(result.body))

    def _not_here(self, result: GetResult, offset: int) -> tuple[ResponseCode, GetResult]:
        """Return the answer of a slave to a pull of messages that it does not have.

        The slave may be behind its master, or its log may begin later, so it never moves a consumer's offset. The consumer
        retries at the master, or, while that is down, here.
        """
        assert self._master_alive is not None
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if self._master_alive() else ResponseCode.PULL_NOT_FOUND
        return code, replace(result, next_begin_offset=offset)

    def disconnected(self, conn: Connection) -> None:
        """Drop the parked pulls of a closed connection."""
        self._long_polling.drop(conn.state.parked)
        conn.state.parked.clear()

    def _park(self, pull: Pull, now_ms: int, max_ms: int) -> None:
        settings = self._context.settings
        excess = self._excess(pull)
        if excess is not None:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy, start flow control for a while: {excess}")
        wait_ms = pull.header.suspend_timeout_millis if settings.long_polling_enable else settings.short_polling_time_mills
        self._hold(pull, now_ms + min(max(wait_ms, 0), max_ms))

    def _hold(self, pull: Pull, deadline_ms: int) -> None:
        parked = ParkedPull(pull.target.queue, pull.offset, deadline_ms, pull.tag_codes, pull, self.resume, pull.sql)
        pull.conn.state.parked.add(parked)
        self._long_polling.park(parked)

    def _excess(self, pull: Pull) -> str | None:
        """Return which limit another parked pull would exceed."""
        settings, polling = self._context.settings, self._long_polling
        if len(pull.conn.state.parked) >= settings.pull_thread_pool_queue_capacity:
            return (
                f"{len(pull.conn.state.parked)} pulls of this connection wait, pullThreadPoolQueueCapacity is "
                f"{settings.pull_thread_pool_queue_capacity}; use more connections"
            )
        if polling.parked_at(pull.target.queue) >= settings.max_parked_pulls_per_queue:
            return (
                f"{settings.max_parked_pulls_per_queue} pulls of this queue wait (maxParkedPullsPerQueue); "
                "use fewer consumers, or pull without suspending"
            )
        if polling.count >= settings.max_parked_pulls:
            return f"{polling.count} pulls wait, maxParkedPulls is {settings.max_parked_pulls}; try another broker, or later"
        if pull.sql is not None and polling.filter_size + pull.sql.size > MAX_PARKED_FILTER_SIZE:
            return (
                f"the SQL92 filters of all waiting pulls have {polling.filter_size} terms, and {MAX_PARKED_FILTER_SIZE} is the "
                "maximum; use shorter expressions, or the same one in all consumers of a group"
            )
        return None

    def _target(self, conn: Connection, header: PullMessageRequestHeader, now_ms: int) -> ReadTarget:
        context = self._context
        topics, groups, permission = self._authorized_under
        if (
            topics is context.topics.data_version
            and groups is context.groups.data_version
            and permission == context.settings.broker_permission
        ):
            target = self._targets.get((header.consumer_group, header.topic, header.queue_id))
            if target is not None:
                return target
        else:
            self._targets.clear()
        target = self._authorize(conn, header, now_ms)
        # Only now: the authorization may have created the group.
        under = (context.topics.data_version, context.groups.data_version, context.settings.broker_permission)
        if under != self._authorized_under:
            self._targets.clear()
            self._authorized_under = under
        if len(self._targets) >= _MAX_TARGETS:
            self._targets.clear()
        self._targets[header.consumer_group, header.topic, header.queue_id] = target
        return target

    def _authorize(self, conn: Connection, header: PullMessageRequestHeader, now_ms: int) -> ReadTarget:
        context = self._context
        permission = context.settings.broker_permission
        if not permission & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker {context.name} is not readable: brokerPermission is {permission}, 4 is needed",
                {"forbiddenType": 1},
            )
        group = context.groups.must_find(header.consumer_group, now_ms)
        if not group.consume_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"subscription group {group.group_name} may not consume: its consumeEnable is false",
                {"forbiddenType": 2},
            )
        topic = context.topics.find(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not topic.perm & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic {header.topic} has permission {topic.perm} and cannot be read",
                {"forbiddenType": 3},
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{conn.peer}]",
            )
        if context.groups.forbidden(header.consumer_group, header.topic):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group {header.consumer_group} may not read topic {header.topic}: an operator has forbidden it",
                {"forbiddenType": 5},
            )
        queue = context.store.queue(header.topic, header.queue_id)
        return ReadTarget(topic, group, queue, context.stats.group_get(header.consumer_group, header.topic))

    def _subscription(self, header: PullMessageRequestHeader, broadcast_enabled: bool) -> SubscriptionData:
        clients = self._context.clients
        group, topic = header.consumer_group, header.topic
        if header.sys_flag & SUBSCRIPTION:
            return subscription.build(topic, header.subscription, header.sub_version, header.expression_type)
        known = clients.consumer_group(group)
        if known is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer group [{group}] is not registered here: its heartbeat has not come yet",
            )
        if known.broadcasting and not broadcast_enabled:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group [{group}] may not consume by broadcasting: its consumeBroadcastEnable is false",
                {"forbiddenType": 4},
            )
        wanted = clients.subscription_for_pull(group, topic, header.sub_version, header.expression_type)
        if wanted is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer group [{group}] is not subscribed to topic {topic}")
        return wanted

    def _sql(self, wanted: SubscriptionData) -> Filter | None:
        """Return the SQL92 filter to apply; None if the subscription is by tags."""
        if (wanted.expression_type or subscription.TAG) == subscription.TAG:
            return None
        subscription.check_expression_type(wanted.expression_type, enabled=self._context.settings.enable_property_filter)
        try:
            return subscription.compile_sql(wanted.sub_string)
        except ValueError as error:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the subscription to {wanted.topic} cannot be parsed: {error}; it reads {wanted.sub_string[:256]!r}",
            ) from None

    def _read(
        self,
        target: ReadTarget,
        header: PullMessageRequestHeader,
        offset: int,
        tag_codes: frozenset[int] | None,
        sql: Filter | None,
        may_be_part: bool = False,
    ) -> GetResult:
        count, queue = header.max_msg_nums, target.queue
        if sql is not None:
            return get_filtered(self._store, queue, offset, min(max(count, 1), _MAX_FILTERED), sql)
        return self._store.get_messages(queue, offset, count, tag_codes=tag_codes, may_be_part=may_be_part, bulk=header.bulk)

    def _offset_moved(self, request: Command, header: PullMessageRequestHeader, target: ReadTarget, offset: int) -> bytes:
        nothing = GetResult(GetStatus.OFFSET_FOUND_NULL, offset, target.queue.min_offset, target.queue.max_offset)
        return self._response(request, header, target, ResponseCode.PULL_OFFSET_MOVED, nothing, "OFFSET_RESET")

    def _response(
        self,
        request: Command,
        header: PullMessageRequestHeader,
        target: ReadTarget,
        code: int,
        result: GetResult,
        remark: str | None = None,
    ) -> bytes:
        """Return the frame of the response, without the part of the log that follows it."""
        suggested = 0
        if result.suggest_slave and self._context.settings.slave_read_enable:
            suggested = target.group.which_broker_when_consume_slowly
        body = result.body
        size = len(body) if result.part is None else result.part.size
        self.last_response_code = code
        if code == ResponseCode.SUCCESS:
            self._context.stats.got(target.got, result.count, size)
            self._context.offsets.pulled(header.consumer_group, header.topic, header.queue_id, result.next_begin_offset)
        else:
            body, size = b"", 0
            self._context.stats.missed()
        return encode_pull_response(
            request,
            code,
            remark or result.status,
            body,
            size,
            suggested_broker_id=suggested,
            group_sys_flag=target.group_sys_flag,
            next_begin_offset=result.next_begin_offset,
            max_offset=result.max_offset,
            min_offset=result.min_offset,
            topic_sys_flag=target.topic_sys_flag,
        )


def _without_texts(header: PullMessageRequestHeader) -> PullMessageRequestHeader:
    """Return the header without long texts that are not needed after the filter was built."""
    texts = (header.subscription, header.expression_type, header.proxy_froward_client_id)
    if sum(len(text) for text in texts if text) <= _MAX_KEPT_TEXT:
        return header
    return PullMessageRequestHeader(
        consumer_group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=header.queue_offset,
        max_msg_nums=header.max_msg_nums,
        sys_flag=header.sys_flag,
        commit_offset=header.commit_offset,
        suspend_timeout_millis=header.suspend_timeout_millis,
        bulk=header.bulk,
    )


def _code(status: GetStatus, asked_offset: int) -> ResponseCode:
    if status is GetStatus.FOUND:
        return ResponseCode.SUCCESS
    if status in _RETRY:
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if status in _NOT_FOUND or (status in _EMPTY and asked_offset == 0):
        return ResponseCode.PULL_NOT_FOUND
    return ResponseCode.PULL_OFFSET_MOVED
