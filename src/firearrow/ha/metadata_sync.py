"""What a slave copies from its master beside the log: topics, groups, consumer and delay offsets, request modes, timers.

A copy is a few requests on an ordinary connection, every `slaveSyncInterval`, the first as soon as the master is known. A table
takes the place of the slave's own, or, offsets, goes into it. One that the master does not give is left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from firearrow.broker.roles.replication import ReplicationHost
from firearrow.net.channel import Channel
from firearrow.store.timer.checkpoint import TimerCheckpoint
from firearrow.wire import fastjson
from firearrow.wire.bodies import ConsumerOffsetSerializeWrapper, TopicConfigSerializeWrapper
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command

CALL_TIMEOUT_MS = 3_000
_PAGE = 2_000
_MOST_PAGES = 1_000

log = logging.getLogger("firearrow.ha.slave")


class MetadataCopy:
    """`parts` of the broker change; nobody else has to be told: listeners are."""

    def __init__(self, broker: ReplicationHost) -> None:
        self._broker = broker

    async def copy(self, channel: Channel) -> None:
        """Everything once. OSError when the master cannot be asked; what it answers wrongly is logged and left out."""
        tables = (self._topics, self._groups, self._offsets, self._delay_offsets, self._request_modes)
        for table in (*tables, self._timer_check_point, self._timer_metrics):
            await _tolerant(table, channel)

    async def _topics(self, channel: Channel) -> None:
        whole: TopicConfigSerializeWrapper | None = None
        for page in range(_MOST_PAGES):
            ext = {"topicSeq": page * _PAGE, "maxTopicNum": _PAGE, "dataVersion": ""}
            answer = await self._ask(channel, RequestCode.GET_ALL_TOPIC_CONFIG, ext)
            theirs = TopicConfigSerializeWrapper.from_json(_table(answer))
            if whole is None:
                whole = theirs
            else:
                whole.topic_config_table.update(theirs.topic_config_table)
            if (page + 1) * _PAGE >= _total(answer, "totalTopicNum"):
                break
        assert whole is not None
        for name, config in whole.topic_config_table.items():
            config.topic_name = name
        parts = self._broker.parts
        for topic in parts.topics.take_over(whole):
            parts.store.drop_topic(topic)

    async def _groups(self, channel: Channel) -> None:
        whole: dict[str, Any] = {}
        for page in range(_MOST_PAGES):
            ext = {"groupSeq": page * _PAGE, "maxGroupNum": _PAGE, "dataVersion": ""}
            answer = await self._ask(channel, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext)
            theirs = _table(answer)
            if not whole:
                whole = dict(theirs)
            else:
                for table in ("subscriptionGroupTable", "forbiddenTable"):
                    whole[table] = {**(whole.get(table) or {}), **(theirs.get(table) or {})}
            if (page + 1) * _PAGE >= _total(answer, "totalGroupNum"):
                break
        self._broker.parts.groups.take_over(whole)

    async def _offsets(self, channel: Channel) -> None:
        answer = await self._ask(channel, RequestCode.GET_ALL_CONSUMER_OFFSET)
        self._broker.parts.offsets.take_over(ConsumerOffsetSerializeWrapper.from_json(_table(answer)))

    async def _delay_offsets(self, channel: Channel) -> None:
        theirs = _table(await self._ask(channel, RequestCode.GET_ALL_DELAY_OFFSET))
        broker = self._broker
        delay, config = broker.parts.delay, broker.config
        before = delay.to_json(0)["offsetTable"]
        delay.load(theirs)
        text = fastjson.dumps_pretty(delay.to_json(broker.now_ms()))
        if delay.to_json(0)["offsetTable"] != before:
            broker.parts.store.submit(lambda: config.save_text("delayOffset.json", text))

    async def _request_modes(self, channel: Channel) -> None:
        self._broker.parts.request_modes.take_over(_table(await self._ask(channel, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)))

    async def _timer_check_point(self, channel: Channel) -> None:
        answer = await self._ask(channel, RequestCode.GET_TIMER_CHECK_POINT)
        timers = self._broker.parts.timers
        if answer.body:
            timers.follow(TimerCheckpoint.decode_fields(answer.body))

    async def _timer_metrics(self, channel: Channel) -> None:
        theirs = _table(await self._ask(channel, RequestCode.GET_TIMER_METRICS))
        timers = self._broker.parts.timers
        save = timers.metrics.follow(theirs)
        if save is not None:
            self._broker.parts.store.submit(save)

    async def _ask(self, channel: Channel, code: RequestCode, ext: Mapping[str, Any] | None = None) -> Command:
        answer = await channel.call(code, ext or {}, b"", timeout_ms=CALL_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise _NotGivenError(f"request {int(code)} was answered with code {answer.code}: {answer.remark}")
        if not self._broker.parts.settings.is_slave:
            raise _NotGivenError("this broker has become the master meanwhile")
        return answer


class _NotGivenError(Exception):
    pass


async def _tolerant(copy: Callable[[Channel], Awaitable[None]], channel: Channel) -> None:
    try:
        await copy(channel)
    except _NotGivenError as error:
        log.debug("the master at %s does not give a table: %s", channel.address, error)
    except (ProtocolError, ValueError, TypeError, KeyError) as error:
        log.warning("a table of the master at %s cannot be read: %s", channel.address, error)


def _table(answer: Command) -> dict[str, Any]:
    value = fastjson.loads(answer.body) if answer.body else {}
    if not isinstance(value, dict):
        raise ProtocolError(f"an object was expected, not {type(value).__name__}")
    return value


def _total(answer: Command, field: str) -> int:
    """How many entries there are; 0 from a master that gives all at once."""
    text = str((answer.ext or {}).get(field) or "0")
    return int(text) if text.isdigit() else 0
