"""Pulls (11, 361): what a consumer may read, what it gets, and when it has to wait.

A pull passes three gates. *May it?* (group, topic and queue: `_judge`, remembered as a `ReadTarget`; then its subscription.) *Is
there something?* (`_read`: the store looks, the result becomes a code.) *If not, may it wait?* (held until a message arrives, see
held_pulls.py.) A pull that was held goes through the second gate once more and is then answered whatever comes out.

    store's status                                        code                      nextBeginOffset
    FOUND                                                 0   SUCCESS               after the last entry looked at
    NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING              20  PULL_RETRY_IMMEDIATELY  after the last entry looked at
    OFFSET_OVERFLOW_ONE, OFFSET_FOUND_NULL                19  PULL_NOT_FOUND        the offset asked for (held first)
    NO_MESSAGE_IN_QUEUE, NO_MATCHED_LOGIC_QUEUE           19 at offset 0, else 21   0
    OFFSET_TOO_SMALL, OFFSET_OVERFLOW_BADLY               21  PULL_OFFSET_MOVED     the queue's min, its max
    OFFSET_RESET (an operator moved the group)            21  PULL_OFFSET_MOVED     where it was moved to

A slave answers 20 instead of 19 and 21 as long as its master is there, after a short wait: the consumer asks that one.

A pull without an expression is filtered by the subscription of the group's heartbeat. When the pull is newer than that
heartbeat (the two travel independently), filtering by the old tags could skip messages that the consumer wants now, and
refusing it would stall the consumer: such a pull is served unfiltered, since clients compare the tags themselves.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firearrow.broker.context import BrokerContext
from firearrow.broker.observability.stats import GroupGetStats
from firearrow.broker.pull import subscription
from firearrow.broker.pull.filtered import get_filtered
from firearrow.broker.pull.long_polling import LongPolling, ParkedPull
from firearrow.broker.requests.responses import Refused
from firearrow.net.server import Connection
from firearrow.store.commitlog.reader import GetResult, GetStatus
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.wire.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from firearrow.wire.codes import VERSION, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.client import PullMessageRequestHeader

if TYPE_CHECKING:
    from firearrow.broker.sql92 import Filter

PERM_READ = 4
COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 0x1, 0x2, 0x4  # bits of a pull's sysFlag
MAX_SUSPEND_MS = 30_000  # some clients send nanoseconds
AT_SLAVE_MS = 500  # then the master is to be asked; at once, a client that does not know it yet would ask here again and again

_MOST_SOURCES = 100_000
_MOST_FILTERED = 32  # messages of one pull through an SQL92 filter, as of one near the end of the log

_BY_TAG = (None, "", subscription.TAG)

_LENGTHS = struct.Struct(">II")
_RESPONSE = (
    b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","groupSysFlag":"%d","nextBeginOffset":"%d","maxOffset":"%d",'
    b'"minOffset":"%d","topicSysFlag":"%d"},"flag":1,"language":"JAVA","opaque":%d,"remark":"%b",'
    b'"serializeTypeCurrentRPC":"JSON","version":' + b"%d}" % VERSION
)
_HAS_LOOKED = (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
_RETRY = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)
_NOT_FOUND = (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.OFFSET_FOUND_NULL)
_EMPTY = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


class ReadTarget:
    """A queue as one group may read it: judged once, good until a topic, a group or the broker's permission changes."""

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
    """A pull that may be served."""

    conn: Connection
    request: Command
    header: PullMessageRequestHeader
    source: ReadTarget
    tag_codes: frozenset[int] | None
    sql: Filter | None
    offset: int  # where to read; moves on while a held pull passes over messages that its filter does not select


class PullHandler:
    def __init__(self, parts: BrokerContext, long_polling: LongPolling) -> None:
        self._parts = parts
        self._long_polling = long_polling
        self._store = parts.store
        self._sources: dict[tuple[str, str, int], ReadTarget] = {}
        self._judged_under: tuple[object, object, int] = (None, None, 0)  # versions of topics and groups, broker permission
        self._master_alive: Callable[[], bool] | None = None  # None: this broker is a master
        self.last_response_code = 0

    def serve_as_master(self) -> None:
        self._master_alive = None

    def serve_as_slave(self, master_alive: Callable[[], bool]) -> None:
        """Redirect consumers that find nothing to the master, as long as it is alive."""
        self._master_alive = master_alive

    def pull(self, conn: Connection, request: Command, now_ms: int) -> bytes | None:
        """The answer; empty when it is sent already; None when the pull is held."""
        header = request.header or PullMessageRequestHeader.decode(request.ext)
        source = self._source(conn, header, now_ms)
        sys_flag = header.sys_flag
        tag_codes, sql = None, None
        # The usual pull consumer names its filter, and it is "everything": nothing to look up or to build.
        if not (sys_flag & SUBSCRIPTION and header.subscription == "*" and header.expression_type in _BY_TAG):
            wanted = self._subscription(header, source.group.consume_broadcast_enable)
            sql = self._sql(wanted)
            tag_codes = self._parts.clients.tag_codes(header.consumer_group, wanted) if sql is None else None
        offsets = self._parts.offsets
        reset = offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            return self._moved(request, header, source, reset)
        if sys_flag & COMMIT_OFFSET:
            offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset, now_ms)
        may_be_part = conn.takes_files and not request.binary and not request.flag & 2
        result = self._read(source, header, header.queue_offset, tag_codes, sql, may_be_part)
        code = _code(result.status, header.queue_offset)
        most_ms = MAX_SUSPEND_MS
        if self._master_alive is not None and code not in _HAS_LOOKED:
            code = ResponseCode.PULL_NOT_FOUND
            if self._master_alive():
                most_ms = AT_SLAVE_MS
        if code == ResponseCode.PULL_NOT_FOUND and sys_flag & SUSPEND and not request.flag & 2:
            self._hold(Pull(conn, request, header, source, tag_codes, sql, header.queue_offset), now_ms, most_ms)
            return None
        if self._master_alive is not None and code == ResponseCode.PULL_NOT_FOUND:
            code, result = self._not_here(result, header.queue_offset)
        if result.part is None:
            return self._answer(request, header, source, code, result)
        descriptor, position, size = result.part
        conn.write_file(self._answer(request, header, source, code, result), descriptor, position, size)
        return b""

    def resume(self, parked: ParkedPull) -> None:
        """Answer a parked pull: messages have arrived, or its time is up."""
        pull = parked.pull
        pull.conn.state.held -= 1
        if pull.conn.closed:
            return
        header, source = pull.header, pull.source
        reset = self._parts.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            pull.conn.write(self._moved(pull.request, header, source, reset))
            return
        result = self._read(source, header, pull.offset, pull.tag_codes, pull.sql)
        code = _code(result.status, pull.offset)
        if self._master_alive is not None and code not in _HAS_LOOKED:
            code, result = self._not_here(result, pull.offset)
        elif code == ResponseCode.PULL_RETRY_IMMEDIATELY and not parked.expired:
            # What arrived was not for this consumer: it goes on waiting, behind that.
            pull.offset = result.next_begin_offset
            pull.conn.state.held += 1
            self._long_polling.park(ParkedPull(source.queue, pull.offset, parked.deadline_ms, pull.tag_codes, pull, self.resume))
            return
        pull.conn.write(self._answer(pull.request, header, source, code, result))

    def _not_here(self, result: GetResult, offset: int) -> tuple[ResponseCode, GetResult]:
        """Return the answer of a slave to a pull of messages that it does not have.

        The slave may be behind its master, or its log may begin later, so it never moves a consumer's offset. The consumer
        retries at the master, or, while that is down, here.
        """
        assert self._master_alive is not None
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if self._master_alive() else ResponseCode.PULL_NOT_FOUND
        return code, replace(result, next_begin_offset=offset)

    def _hold(self, pull: Pull, now_ms: int, most_ms: int) -> None:
        settings = self._parts.settings
        if pull.conn.state.held >= settings.pull_thread_pool_queue_capacity:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, start flow control for a while: {pull.conn.state.held} pulls of this connection wait, "
                f"pullThreadPoolQueueCapacity is {settings.pull_thread_pool_queue_capacity}; use more connections",
            )
        pull.conn.state.held += 1
        wait_ms = pull.header.suspend_timeout_millis if settings.long_polling_enable else settings.short_polling_time_mills
        deadline_ms = now_ms + min(max(wait_ms, 0), most_ms)
        self._long_polling.park(ParkedPull(pull.source.queue, pull.offset, deadline_ms, pull.tag_codes, pull, self.resume))

    def _source(self, conn: Connection, header: PullMessageRequestHeader, now_ms: int) -> ReadTarget:
        parts = self._parts
        topics, groups, permission = self._judged_under
        if (
            topics is parts.topics.data_version
            and groups is parts.groups.data_version
            and permission == parts.settings.broker_permission
        ):
            source = self._sources.get((header.consumer_group, header.topic, header.queue_id))
            if source is not None:
                return source
        else:
            self._sources.clear()
        source = self._judge(conn, header, now_ms)
        # Only now: judging may have created the group.
        under = (parts.topics.data_version, parts.groups.data_version, parts.settings.broker_permission)
        if under != self._judged_under:
            self._sources.clear()
            self._judged_under = under
        if len(self._sources) >= _MOST_SOURCES:
            self._sources.clear()
        self._sources[header.consumer_group, header.topic, header.queue_id] = source
        return source

    def _judge(self, conn: Connection, header: PullMessageRequestHeader, now_ms: int) -> ReadTarget:
        parts = self._parts
        if not parts.settings.broker_permission & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker {parts.name} is not readable: brokerPermission is {parts.settings.broker_permission}, 4 is needed",
                {"forbiddenType": 1},
            )
        group = parts.groups.must_find(header.consumer_group, now_ms)
        if not group.consume_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"subscription group {group.group_name} may not consume: its consumeEnable is false",
                {"forbiddenType": 2},
            )
        topic = parts.topics.find(header.topic)
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
        if parts.groups.forbidden(header.consumer_group, header.topic):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group {header.consumer_group} may not read topic {header.topic}: an operator has forbidden it",
                {"forbiddenType": 5},
            )
        queue = parts.store.queue(header.topic, header.queue_id)
        return ReadTarget(topic, group, queue, parts.stats.group_get(header.consumer_group, header.topic))

    def _subscription(self, header: PullMessageRequestHeader, broadcast_enabled: bool) -> SubscriptionData:
        clients = self._parts.clients
        group, topic = header.consumer_group, header.topic
        if header.sys_flag & SUBSCRIPTION:
            wanted = subscription.build(topic, header.subscription, header.sub_version, header.expression_type)
        else:
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
            found = clients.seen_in_pull(group, topic, header.sub_version, None, header.expression_type)
            if found is None:
                raise Refused(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer group [{group}] is not subscribed to topic {topic}"
                )
            wanted = found
        return wanted

    def _sql(self, wanted: SubscriptionData) -> Filter | None:
        """The SQL92 filter to apply; None when the subscription is by tags."""
        if (wanted.expression_type or subscription.TAG) == subscription.TAG:
            return None
        subscription.check_expression_type(wanted.expression_type, enabled=self._parts.settings.enable_property_filter)
        try:
            return subscription.compile_sql(wanted.sub_string)
        except ValueError as error:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the subscription to {wanted.topic} cannot be parsed: {error}; it reads {wanted.sub_string[:256]!r}",
            ) from None

    def _read(
        self,
        source: ReadTarget,
        header: PullMessageRequestHeader,
        offset: int,
        tag_codes: frozenset[int] | None,
        sql: Filter | None,
        may_be_part: bool = False,
    ) -> GetResult:
        count, queue = header.max_msg_nums, source.queue
        if sql is not None:
            return get_filtered(self._store, queue, offset, min(max(count, 1), _MOST_FILTERED), sql.matches)
        return self._store.get_messages(queue, offset, count, tag_codes=tag_codes, may_be_part=may_be_part, bulk=header.bulk)

    def _moved(self, request: Command, header: PullMessageRequestHeader, source: ReadTarget, offset: int) -> bytes:
        nothing = GetResult(GetStatus.OFFSET_FOUND_NULL, offset, source.queue.min_offset, source.queue.max_offset)
        return self._answer(request, header, source, ResponseCode.PULL_OFFSET_MOVED, nothing, "OFFSET_RESET")

    def _answer(
        self,
        request: Command,
        header: PullMessageRequestHeader,
        source: ReadTarget,
        code: int,
        result: GetResult,
        remark: str | None = None,
    ) -> bytes:
        """The frame of the answer; of one with a part of the log, what comes before that."""
        suggested = 0
        if result.suggest_slave and self._parts.settings.slave_read_enable:
            suggested = source.group.which_broker_when_consume_slowly
        body = result.body
        size = len(body) if result.part is None else result.part.size
        self.last_response_code = code
        if code == ResponseCode.SUCCESS:
            self._parts.stats.got(source.got, result.count, size)
            self._parts.offsets.pulled(header.consumer_group, header.topic, header.queue_id, result.next_begin_offset)
        else:
            body, size = b"", 0
            self._parts.stats.missed()
        if request.binary:
            ext = {"nextBeginOffset": result.next_begin_offset, "minOffset": result.min_offset, "maxOffset": result.max_offset}
            ext |= {"topicSysFlag": source.topic_sys_flag, "groupSysFlag": source.group_sys_flag}
            ext |= {"suggestWhichBrokerId": suggested}
            return encode_response(request, code, remark or result.status, ext, body)
        head = _RESPONSE % (
            code,
            suggested,
            source.group_sys_flag,
            result.next_begin_offset,
            result.max_offset,
            result.min_offset,
            source.topic_sys_flag,
            request.opaque,
            (remark or result.status).encode(),
        )
        return b"".join((_LENGTHS.pack(len(head) + 4 + size, len(head)), head, body))


def _code(status: GetStatus, asked_offset: int) -> ResponseCode:
    if status is GetStatus.FOUND:
        return ResponseCode.SUCCESS
    if status in _RETRY:
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if status in _NOT_FOUND or (status in _EMPTY and asked_offset == 0):
        return ResponseCode.PULL_NOT_FOUND
    return ResponseCode.PULL_OFFSET_MOVED
