"""Heartbeats (34): a broker knows the members of a group, and where to send what concerns them, by these alone."""

from __future__ import annotations

from collections.abc import Iterable

from firearrow.client.connection.members import ConsumerMember
from firearrow.wire.bodies.client import HeartbeatData, ProducerData
from firearrow.wire.fastjson import dumps
from firearrow.wire.names import CLIENT_INNER_PRODUCER_GROUP


def heartbeat_body(client_id: str, producer_groups: Iterable[str], consumers: Iterable[ConsumerMember]) -> bytes:
    """What a heartbeat says. The group of the client's own sends is always part of it: brokers answer requests through it."""
    producers = [ProducerData(group) for group in sorted({CLIENT_INNER_PRODUCER_GROUP, *producer_groups})]
    data = HeartbeatData(client_id, producers, [consumer.heartbeat() for consumer in consumers])
    return dumps(data.to_json())
