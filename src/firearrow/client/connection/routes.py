"""Topic routes: the brokers of a topic, their addresses and queues.

Producers write to a broker's queues only while its master has an address; consumers read from any broker with read permission.

Messages to a topic that does not exist are sent by the route of the template topic `TBW102`, and the broker creates the topic.
`template_route` is that route, with no more queues than the broker will create.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from firearrow.client.message import MessageQueue
from firearrow.wire.bodies.route import TopicRouteData
from firearrow.wire.errors import ProtocolError
from firearrow.wire.fastjson import loads

MASTER: Final = 0
PERM_READ: Final = 4
PERM_WRITE: Final = 2
DEFAULT_TOPIC_QUEUES: Final = 4
NO_OTHER_ADDRESSES: Final[Mapping[str, str]] = {}


@dataclass(slots=True, frozen=True)
class QueueCounts:
    """Queue counts and permissions of a topic on one broker."""

    broker_name: str
    read: int
    write: int
    perm: int


@dataclass(slots=True, frozen=True)
class TopicRoute:
    """The route of a topic. `brokers`: broker name -> broker id -> address; id 0 is the master."""

    topic: str
    brokers: dict[str, dict[int, str]]
    queue_counts: tuple[QueueCounts, ...]
    order_config: str | None = None
    clusters: dict[str, str] = field(default_factory=dict, compare=False)  # broker name -> cluster name

    def write_queues(self) -> list[MessageQueue]:
        """Return the writable queues, sorted."""
        if self.order_config:
            return _ordered_queues(self.topic, self.order_config)
        queues = [
            MessageQueue(self.topic, counts.broker_name, queue_id)
            for counts in self.queue_counts
            if counts.perm & PERM_WRITE and MASTER in self.brokers.get(counts.broker_name, ())
            for queue_id in range(counts.write)
        ]
        return sorted(queues)

    def read_queues(self) -> list[MessageQueue]:
        """Return the readable queues, sorted."""
        queues = [
            MessageQueue(self.topic, counts.broker_name, queue_id)
            for counts in self.queue_counts
            if counts.perm & PERM_READ
            for queue_id in range(counts.read)
        ]
        return sorted(queues)


def decode_route(topic: str, body: bytes, reached_at: Mapping[str, str] = NO_OTHER_ADDRESSES) -> TopicRoute:
    """Decode the body of a response to 105; `reached_at` replaces addresses. ProtocolError if it is malformed."""
    data = TopicRouteData.from_json(loads(body))
    brokers = {
        broker.broker_name: {number: reached_at.get(address, address) for number, address in sorted(broker.broker_addrs.items())}
        for broker in data.broker_datas
    }
    counts = sorted(
        (QueueCounts(q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in data.queue_datas),
        key=lambda q: q.broker_name,
    )
    clusters = {broker.broker_name: broker.cluster for broker in data.broker_datas}
    return TopicRoute(topic, brokers, tuple(counts), data.order_topic_conf or None, clusters)


def template_route(topic: str, template: TopicRoute, queues: int = DEFAULT_TOPIC_QUEUES) -> TopicRoute:
    """Return the route for the first messages to a topic that does not exist yet."""
    counts = []
    for found in template.queue_counts:
        number = min(queues, found.read)
        counts.append(QueueCounts(found.broker_name, number, number, found.perm))
    return TopicRoute(topic, template.brokers, tuple(counts), None, template.clusters)


def _ordered_queues(topic: str, order_config: str) -> list[MessageQueue]:
    """Parse `broker-a:4;broker-b:2`: the queues of an ordered topic do not change while a broker is down."""
    queues = []
    for part in order_config.split(";"):
        name, colon, count = part.partition(":")
        if not colon or not count.isascii() or not count.isdigit():
            raise ProtocolError(f"the order configuration of {topic!r} is {order_config!r}, expected broker:count;broker:count")
        queues += [MessageQueue(topic, name, queue_id) for queue_id in range(int(count))]
    return queues
