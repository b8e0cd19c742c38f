"""Queue assignment by the broker (400) and its mode per topic and group (401, 402).

A consumer that does not rebalance itself asks for its queues of a topic. All members must get consistent answers, so queues and
members are sorted, and each member gets its share by its index.

    N queues, C members, i the member's index, m = N mod C
    AVG             i < m: floor(N/C) + 1 queues from i * that; else floor(N/C) queues from i * floor(N/C) + m
    AVG_BY_CIRCLE   the queues i, i + C, i + 2C, ...

A client that is not a member of the group gets no queues. Broadcasting members get all.

Only the queues of this broker are assigned. The mode is PULL unless POP was set for a topic and group
(`config/messageRequestMode.json`). POP is not served yet: a group set to POP by another broker is assigned queues to pull.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused, done, json_answer, read_body
from firearrow.broker.tables.topics import PERM_READ
from firearrow.net.server import Connection
from firearrow.wire.bodies import client as bodies
from firearrow.wire.bodies.client import SetMessageRequestModeRequestBody as RequestMode
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.names import RETRY_PREFIX

PULL = "PULL"
POP = "POP"


class RequestModes:
    """The request mode of each topic and group."""

    def __init__(self, save: Callable[[dict[str, Any]], None] = lambda table: None) -> None:
        self._modes: dict[str, dict[str, RequestMode]] = {}
        self._save = save

    def set(self, mode: RequestMode) -> None:
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._save(self.to_json())

    def remove_topic(self, topic: str) -> None:
        if self._modes.pop(topic, None) is not None:
            self._save(self.to_json())

    def load(self, table: Mapping[str, Any]) -> None:
        """Load the contents of the file."""
        self._modes = bodies.MessageRequestModeSerializeWrapper.from_json(table).message_request_mode_map

    def take_over(self, theirs: Mapping[str, Any]) -> None:
        """Take over the master's modes on a slave."""
        before = self.to_json()
        self.load(theirs)
        if self.to_json() != before:
            self._save(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return bodies.MessageRequestModeSerializeWrapper(self._modes).to_json()


T = TypeVar("T")

AVG = "AVG"
AVG_BY_CIRCLE = "AVG_BY_CIRCLE"
BROADCASTING = "BROADCASTING"


def share(strategy: str, queues: Sequence[T], members: Sequence[str], member: str) -> list[T]:
    """Return the queues of `member`. Both lists must be sorted. Rejects an unknown strategy."""
    if strategy not in (AVG, AVG_BY_CIRCLE):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"unsupported strategy {strategy!r}: this broker supports AVG and AVG_BY_CIRCLE")
    if member not in members:
        return []
    place, count = members.index(member), len(members)
    if strategy == AVG_BY_CIRCLE:
        return list(queues[place::count])
    size, rest = divmod(len(queues), count)
    start = place * size + min(place, rest)
    return list(queues[start : start + size + (1 if place < rest else 0)])


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    def query_assignment(conn: Connection, request: Command, now_ms: int) -> bytes:
        wish = read_body(request, bodies.QueryAssignmentRequestBody.from_json)
        topic = broker.topics.find(wish.topic)
        count = topic.read_queue_nums if topic is not None and topic.perm & PERM_READ else 0
        queues = [bodies.QueueBody(topic=wish.topic, broker_name=broker.name, queue_id=queue_id) for queue_id in range(count)]
        if wish.message_model != BROADCASTING:
            consumers = broker.clients.consumer_group(wish.consumer_group)
            members = sorted(consumers.client_ids()) if consumers is not None else []
            queues = share(wish.strategy_name or AVG, queues, members, wish.client_id)
        assigned = [bodies.MessageQueueAssignment(queue, PULL) for queue in queues]
        return json_answer(request, bodies.QueryAssignmentResponseBody(assigned))

    def set_message_request_mode(conn: Connection, request: Command, now_ms: int) -> bytes:
        wish = read_body(request, RequestMode.from_json)
        topic, group, mode = wish.topic, wish.consumer_group, wish.mode
        if topic.startswith(RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        broker.topics.must_find(topic)
        if broker.groups.find(group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group[{group}] not exist")
        if mode == POP:
            raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "mode POP is not supported by this broker; use PULL")
        if mode != PULL:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"mode is {mode[:64]!r}; expected PULL")
        broker.request_modes.set(wish)
        return done(request)

    def get_all_message_request_mode(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, broker.request_modes.to_json())

    return {
        RequestCode.QUERY_ASSIGNMENT: query_assignment,
        RequestCode.SET_MESSAGE_REQUEST_MODE: set_message_request_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: get_all_message_request_mode,
    }
