"""Metadata replication beside the log: topics, groups, consumer and delay offsets, request modes, timers, users.

A copy is a few requests on an ordinary connection. A slave copies every `slaveSyncInterval`, the first time as soon as the master
is known. A table of the master replaces the slave's, except that consumer offsets are merged. A table that the master does not
return stays as it is.

With the tables, records that are damaged in the log here are copied from the master, which has the same bytes at the same
offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from firearrow.auth.administration import DATA_VERSION
from firearrow.auth.bootstrap import inner_signer
from firearrow.broker.roles.replication import ReplicationHost
from firearrow.net.channel import Channel
from firearrow.net.tls import outgoing_context
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.wire import fastjson
from firearrow.wire.bodies.admin import ConsumerOffsetSerializeWrapper
from firearrow.wire.bodies.topic import TopicConfigSerializeWrapper
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request, request_code
from firearrow.wire.headers.admin import GetAllSubscriptionGroupRequestHeader, GetAllTopicConfigRequestHeader
from firearrow.wire.headers.auth import GetUserRequestHeader, ListAclsRequestHeader, ListUsersRequestHeader
from firearrow.wire.headers.client import ViewMessageRequestHeader

CALL_TIMEOUT_MS = 3_000
_PAGE = 2_000
_MAX_PAGES = 1_000
_MAX_REPAIRS = 32  # damaged ranges in one copy
_REPAIR_ATTEMPTS = 3  # the master may not have the record either
MAX_INTERVAL_MS = 1_000  # between two copies of a follower
_LEADER_CHECK_S = 0.1

log = logging.getLogger("firearrow.ha.slave")
group_log = logging.getLogger("firearrow.ha.group")


class MetadataCopy:
    """A one-time copy into the tables of a broker, which notify their own listeners."""

    def __init__(self, broker: ReplicationHost) -> None:
        self._broker = broker
        self._repair_attempts: dict[int, int] = {}  # by log offset

    async def copy(self, channel: Channel) -> None:
        """Copy every table once. Raises OSError if the master cannot be reached; an invalid table is logged and skipped."""
        tables = (self._topics, self._groups, self._offsets, self._delay_offsets, self._request_modes)
        for table in (*tables, self._timer_check_point, self._timer_metrics, self._damaged_records, self._users):
            await _copy_if_possible(table, channel)

    async def _topics(self, channel: Channel) -> None:
        whole: TopicConfigSerializeWrapper | None = None
        for page in range(_MAX_PAGES):
            header = GetAllTopicConfigRequestHeader(topic_seq=page * _PAGE, max_topic_num=_PAGE, data_version="")
            answer = await self._call(channel, header)
            theirs = TopicConfigSerializeWrapper.from_json(_table(answer))
            if whole is None:
                whole = theirs
            else:
                whole.topic_config_table.update(theirs.topic_config_table)
            if (page + 1) * _PAGE >= _total(answer, "totalTopicNum"):
                break
        assert whole is not None
        for name, config in list(whole.topic_config_table.items()):
            whole.topic_config_table[name] = replace(config, topic_name=name)
        context = self._broker.context
        for topic in context.topics.take_over(whole):
            context.store.drop_topic(topic)

    async def _groups(self, channel: Channel) -> None:
        whole: dict[str, Any] = {}
        for page in range(_MAX_PAGES):
            header = GetAllSubscriptionGroupRequestHeader(group_seq=page * _PAGE, max_group_num=_PAGE, data_version="")
            answer = await self._call(channel, header)
            theirs = _table(answer)
            if not whole:
                whole = dict(theirs)
            else:
                for table in ("subscriptionGroupTable", "forbiddenTable"):
                    whole[table] = {**(whole.get(table) or {}), **(theirs.get(table) or {})}
            if (page + 1) * _PAGE >= _total(answer, "totalGroupNum"):
                break
        self._broker.context.groups.take_over(whole)

    async def _offsets(self, channel: Channel) -> None:
        answer = await self._call(channel, RequestCode.GET_ALL_CONSUMER_OFFSET)
        self._broker.context.offsets.take_over(ConsumerOffsetSerializeWrapper.from_json(_table(answer)))

    async def _delay_offsets(self, channel: Channel) -> None:
        theirs = _table(await self._call(channel, RequestCode.GET_ALL_DELAY_OFFSET))
        broker = self._broker
        delay, config = broker.context.delay, broker.config
        before = delay.to_json(0)["offsetTable"]
        delay.load(theirs)
        text = fastjson.dumps_pretty(delay.to_json(broker.now_ms()))
        if delay.to_json(0)["offsetTable"] != before:
            broker.context.store.submit(lambda: config.save_text("delayOffset.json", text))

    async def _request_modes(self, channel: Channel) -> None:
        self._broker.context.request_modes.take_over(_table(await self._call(channel, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)))

    async def _timer_check_point(self, channel: Channel) -> None:
        answer = await self._call(channel, RequestCode.GET_TIMER_CHECK_POINT)
        timers = self._broker.context.timers
        if answer.body:
            timers.follow(TimerCheckpoint.decode_fields(answer.body))

    async def _timer_metrics(self, channel: Channel) -> None:
        theirs = _table(await self._call(channel, RequestCode.GET_TIMER_METRICS))
        timers = self._broker.context.timers
        save = timers.metrics.follow(theirs)
        if save is not None:
            self._broker.context.store.submit(save)

    async def _damaged_records(self, channel: Channel) -> None:
        ranges = self._broker.context.store.damage.ranges
        attempts = self._repair_attempts = {start: count for start, count in self._repair_attempts.items() if start in ranges}
        due = [(start, end) for start, end in ranges.items() if attempts.get(start, 0) < _REPAIR_ATTEMPTS]
        for start, end in due[:_MAX_REPAIRS]:
            attempts[start] = attempts.get(start, 0) + 1
            await self._repair(channel, start, end)

    async def _repair(self, channel: Channel, start: int, end: int) -> None:
        """Copy the records of a damaged range, as far as the master has them."""
        store = self._broker.context.store
        position = start
        try:
            while position < end:
                record = (await self._call(channel, ViewMessageRequestHeader(offset=position))).body
                if not store.replica.repair(position, record):
                    return
                position += len(record)
        finally:
            if position > start:
                store.damage.range_repaired(start, position)
                log.warning("copied the damaged log from %d to %d from the master", start, position)

    async def _users(self, channel: Channel) -> None:
        """Copy users and policies if they have changed. A change during the copy makes the next copy start again."""
        ours = self._broker.context.auth
        if ours is None:
            return
        version, names = await self._user_names(channel)
        if version is None or version == ours.data_version.to_json():
            return
        users = {name: _table(await self._call(channel, GetUserRequestHeader(username=name))) for name in names}
        answer = await self._call(channel, ListAclsRequestHeader())
        acls = _objects(answer.body)
        again, _ = await self._user_names(channel)
        if again == version:
            ours.take_over({"dataVersion": version, "users": users, "acls": {str(acl.get("subject")): acl for acl in acls}})

    async def _user_names(self, channel: Channel) -> tuple[dict[str, Any] | None, list[str]]:
        """Return the data version of the master's users, None from a master without it, and their names."""
        answer = await self._call(channel, ListUsersRequestHeader())
        text = (answer.ext or {}).get(DATA_VERSION)
        version = fastjson.loads_object(text) if isinstance(text, str) else None
        return version, [str(user.get("username")) for user in _objects(answer.body)]

    async def _call(self, channel: Channel, request: Request) -> Command:
        answer = await channel.call(request, timeout_ms=CALL_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise _NotProvidedError(f"request {request_code(request)} failed with code {answer.code}: {answer.remark}")
        if not self._broker.context.role.is_slave:
            raise _NotProvidedError("this broker has become the master")
        return answer


class FollowerMetadataSync:
    """Periodic copies from the leader of an elected group to this follower."""

    def __init__(self, broker: ReplicationHost, leader_address: Callable[[], str | None]) -> None:
        self._settings = broker.context.settings
        self._leader_address = leader_address
        self._copy = MetadataCopy(broker)
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure_logged = False

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._drop_channel()

    async def _run(self) -> None:
        while True:
            address = self._leader_address()
            if address is None:
                self._drop_channel()
                await asyncio.sleep(_LEADER_CHECK_S)
                continue
            try:
                await self._copy.copy(await self._connect(address))
                self._failure_logged = False
            except OSError as error:
                self._drop_channel()
                if not self._failure_logged:
                    group_log.warning("cannot copy topics, groups and offsets from %s: %s; trying again", address, error)
                self._failure_logged = True
            await asyncio.sleep(min(self._settings.slave_sync_interval, MAX_INTERVAL_MS) / 1000)

    async def _connect(self, address: str) -> Channel:
        if self._channel is None or self._channel.closed or self._channel.address != address:
            self._drop_channel()
            self._channel = await Channel.connect(
                address, tls=outgoing_context(self._settings), signer=inner_signer(self._settings)
            )
        return self._channel

    def _drop_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and not channel.closed:
            channel.abandon("no longer needed")


class _NotProvidedError(Exception):
    """The master does not provide a table."""


async def _copy_if_possible(copy: Callable[[Channel], Awaitable[None]], channel: Channel) -> None:
    try:
        await copy(channel)
    except _NotProvidedError as error:
        log.debug("the master at %s does not provide a table: %s", channel.address, error)
    except (ProtocolError, ValueError, TypeError, KeyError) as error:
        log.warning("invalid table from the master at %s: %s", channel.address, error)


def _table(answer: Command) -> dict[str, Any]:
    value = fastjson.loads(answer.body) if answer.body else {}
    if not isinstance(value, dict):
        raise ProtocolError(f"expected a JSON object, not {type(value).__name__}")
    return value


def _objects(body: bytes) -> list[dict[str, Any]]:
    value = fastjson.loads(body) if body else []
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ProtocolError("expected a list of JSON objects")
    return value


def _total(answer: Command, field: str) -> int:
    """Return the total number of entries; 0 from a master that returns all of them at once."""
    text = str((answer.ext or {}).get(field) or "0")
    return int(text) if text.isdigit() else 0
