"""Replicated log of topic, group and user changes in an elected group, so that an acknowledged change survives a failover.

The leader stores every change of a topic or group as a message in a system topic. Requests that make such a change are answered
once the message is confirmed. Followers copy the tables every second anyway (ha/metadata_sync.py). A newly elected leader applies
the changes of the last minutes again, in order: each contains the complete configuration of a topic or group.

    rmq_sys_group_tables   queue 0: topics, queue 1: groups, queue 2: users     body: {"name": ..., "config": ... or null}

The change of a user contains its password and policies. With access control only Super users can read this topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.message import BrokerMessage
from firearrow.broker.requests.registered_replies import hold_replies
from firearrow.net.address import parse_address
from firearrow.net.server import Connection
from firearrow.store.errors import StoreError
from firearrow.wire import fastjson
from firearrow.wire.bodies.topic import SubscriptionGroupConfig, TopicConfig
from firearrow.wire.codes import RequestCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command
from firearrow.wire.message_ids import host_bytes
from firearrow.wire.record import decode

TOPIC = "rmq_sys_group_tables"
TOPICS, GROUPS, USERS = 0, 1, 2
MOST = 5_000  # changes of a kind that are applied again
ANSWERED_WHEN_STORED = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
)

log = logging.getLogger("firearrow.broker")


class MetadataChangeLog:
    """Writes changes of topics, groups and users to the log. `leads` returns whether this broker is the master."""

    def __init__(self, context: BrokerContext, leads: Callable[[], bool], now_ms: Callable[[], int]) -> None:
        self._context = context
        self._leads = leads
        self._now_ms = now_ms
        self._host = host_bytes(*parse_address(context.address))
        context.topics.subscribe(lambda name, config: self._changed(TOPICS, name, _json(config)))
        context.groups.subscribe(lambda name, config: self._changed(GROUPS, name, _json(config)))
        if context.auth is not None:
            context.auth.subscribe(lambda name, entry: self._changed(USERS, name, entry))

    def answering_when_stored(self, handlers: dict[int, Handler]) -> dict[int, Handler]:
        """Wrap the handlers whose responses wait until the change is confirmed."""
        return {int(code): self._waiting(handlers[code]) for code in ANSWERED_WHEN_STORED if code in handlers}

    def apply(self) -> None:
        """Apply the changes acknowledged by the previous master, on election."""
        for queue_id in (TOPICS, GROUPS, USERS):
            queue = self._context.store.find_queue(TOPIC, queue_id)
            if queue is not None:
                for offset in range(max(queue.min_offset, queue.max_offset - MOST), queue.max_offset):
                    entry = queue.entry(offset)
                    raw = self._context.store.read_record(entry[0]) if entry is not None else None
                    if raw is not None:
                        self._apply_one(queue_id, raw)

    def _apply_one(self, queue_id: int, raw: bytes) -> None:
        try:
            change = fastjson.loads(decode(raw).body)
            name, config = str(change["name"]), change["config"]
            if queue_id == TOPICS:
                self._context.topics.restore(name, TopicConfig.from_json(config) if config is not None else None)
            elif queue_id == USERS:
                if self._context.auth is not None:
                    self._context.auth.restore(name, config)
            else:
                self._context.groups.restore(name, SubscriptionGroupConfig.from_json(config) if config is not None else None)
        except (ProtocolError, ValueError, TypeError, KeyError) as error:
            log.warning("a change of a topic, group or user in the log cannot be read, and is left out: %s", error)

    def _changed(self, queue_id: int, name: str, config: dict[str, Any] | None) -> None:
        if not self._leads():
            return
        now_ms = self._now_ms()
        message = BrokerMessage(TOPIC, queue_id, fastjson.dumps({"name": name, "config": config}), b"", 0, 0, now_ms, self._host)
        try:
            self._context.writer.deliver(message, now_ms)
        except StoreError as error:
            log.warning("the change of %s cannot be stored: %s", name, error)

    def _waiting(self, handler: Handler) -> Handler:
        def answer_when_stored(conn: Connection, request: Command, now_ms: int) -> None:
            before = self._context.topics.data_version
            response = handler(conn, request, now_ms)
            if response is not None:
                if self._context.topics.data_version is not before:
                    conn = hold_replies(self._context, conn)
                self._context.answer_when_stored(conn, request, response)

        return answer_when_stored


def _json(config: TopicConfig | SubscriptionGroupConfig | None) -> dict[str, Any] | None:
    return None if config is None else config.to_json()
