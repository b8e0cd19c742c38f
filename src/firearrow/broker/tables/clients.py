"""Connected producers and consumers, from their heartbeats, and the subscriptions of each group.

A client sends a heartbeat with its producer and consumer groups every 30 s on every connection. A client is removed when it
unregisters (35), when its connection closes, or after 120 s without a heartbeat.

Invariants:
- No client is registered on a closed connection: it would hold queues until it expired.
- Whenever the members of a consumer group change, every member is notified at once. The methods that can change a group return
  the members to notify, as (connection, group). Broadcasting groups are not notified: they do not share queues.
- The subscription of a group to a topic is the newest, by its version, of its heartbeats. A pull with a newer version and no
  expression of its own is served unfiltered until the next heartbeat, because the client compares tags itself, and an outdated
  filter could skip messages the consumer wants.

Several connections may claim one client id. Replies (326) and operators' requests for a client go to one of them, its owner: the
connection that has used the id longest, as long as it sends heartbeats. Otherwise any client could read the replies of another
by using its id. A client that reconnects becomes the owner when its old connection is closed, or silent for two heartbeats in
case the broker has not noticed that it is broken.

Cost: a pull needs two dictionary lookups. Members are kept by connection, so closing a connection costs as much as the number of
its groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.pull import subscription as sub
from firearrow.broker.requests.responses import Refused, json_answer, read_body
from firearrow.broker.tables.topics import PERM_READ_WRITE, UNIT_SUBSCRIPTION
from firearrow.net.server import Connection
from firearrow.wire.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    SubscriptionData,
)
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.client import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)
from firearrow.wire.names import retry_topic

BROADCASTING = "BROADCASTING"
MAX_GROUPS_PER_CONNECTION = 1_000  # a new group costs about 100 us
MAX_SUBSCRIPTIONS_PER_CONNECTION = 20_000
MAX_NAME = 255
SILENT_MS = 60_000  # without a heartbeat for so long, a connection loses its client id to another one that claims it

ToTell = list[tuple["Connection", str]]


@dataclass(slots=True)
class Client:
    """One member of a group: a client on one connection."""

    conn: Connection
    client_id: str
    language: str
    version: int
    last_update_ms: int
    since_ms: int  # when this connection first used the client id


@dataclass(slots=True)
class ConsumerGroup:
    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    fingerprint: int = 0  # of the last heartbeat with subscriptions; 0: it had none

    @property
    def broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Return the id of each client once.

        A client that has reconnected is a member twice until its old connection is closed. Consumers that allocate queues over a
        list with duplicates leave some queues unassigned.
        """
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find(self, client_id: str) -> Client | None:
        """Return the member with this client id, on the connection that owns the id."""
        return _owner(member for member in self.members.values() if member.client_id == client_id)


class ClientTable:
    def __init__(self, *, expiry_ms: int = 120_000) -> None:
        self._expiry_ms = expiry_ms
        self._producers: dict[str, dict[Connection, Client]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Connection, set[str]] = {}  # consumer groups
        self._producing: dict[Connection, set[str]] = {}
        self._since: dict[Connection, tuple[str, int]] = {}  # the client id of each connection, and since when it uses it
        self._claims: dict[str, dict[tuple[Connection, str], Client]] = {}  # client id -> producers, by connection and group
        # Tag codes of the current subscriptions, which most pulls need.
        self._tag_codes: dict[tuple[str, str], tuple[SubscriptionData, frozenset[int] | None]] = {}

    # Reading.

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """Return the group if it has members."""
        return self._consumers.get(group)

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        return iter(self._consumers.values())

    def producers(self) -> dict[str, list[Client]]:
        return {group: list(members.values()) for group, members in self._producers.items()}

    def producer_group(self, group: str) -> list[Client]:
        return list(self._producers.get(group, {}).values())

    def find_producer(self, client_id: str) -> Client | None:
        """Return the client with this id, on the connection that owns the id."""
        return _owner(self._claims.get(client_id, {}).values())

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        consumers = self._consumers.get(group)
        return None if consumers is None else consumers.subscriptions.get(topic)

    def tag_codes(self, group: str, subscription: SubscriptionData) -> frozenset[int] | None:
        """Return the tag codes to filter by (None: all), cached per subscription object."""
        key = (group, subscription.topic)
        known = self._tag_codes.get(key)
        if known is not None and known[0] is subscription:
            return known[1]
        codes = sub.tag_codes(subscription)
        if subscription is self.subscription(group, subscription.topic):
            self._tag_codes[key] = (subscription, codes)
        return codes

    def group_count(self, conn: Connection, more: Set[str]) -> int:
        """Return the number of groups on this connection if it joined these as well."""
        return len(self._groups_of.get(conn, set()) | self._producing.get(conn, set()) | more)

    def subscription_count(self, conn: Connection, new: Mapping[str, int]) -> int:
        """Return the number of subscriptions of the consumer groups on this connection if these had so many."""
        others = self._groups_of.get(conn, set()) - new.keys()
        return sum(new.values()) + sum(len(self._consumers[group].subscriptions) for group in others if group in self._consumers)

    def topics_subscribed_by(self, group: str) -> set[str]:
        consumers = self._consumers.get(group)
        return set() if consumers is None else set(consumers.subscriptions)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        return [name for name, consumers in self._consumers.items() if topic in consumers.subscriptions]

    # Events.

    def subscription_for_pull(
        self, group: str, topic: str, sub_version: int, expression_type: str | None = None
    ) -> SubscriptionData | None:
        """Return the subscription for a pull without an expression; None if the group is not connected or not subscribed."""
        known = self.subscription(group, topic)
        if known is None or sub_version <= known.sub_version:
            return known
        if (expression_type or known.expression_type or sub.TAG) != sub.TAG:
            # Only the broker can apply this filter. The version also rises whenever a consumer gets other queues, so the known
            # expression is almost certainly still valid.
            return known
        return replace(known, sub_string="*", tags_set=[], code_set=[], sub_version=sub_version)

    def heartbeat_of_producer(
        self, conn: Connection, client_id: str, group: str, language: str, version: int, now_ms: int
    ) -> None:
        if conn.closed:
            return
        members = self._producers.setdefault(group, {})
        known = members.get(conn)
        if known is not None and known.client_id != client_id:
            self._drop_claim(known, group)
        self._seen(members, conn, client_id, language, version, now_ms)
        self._producing.setdefault(conn, set()).add(group)
        self._claims.setdefault(client_id, {})[conn, group] = members[conn]

    def heartbeat_of_consumer(
        self, conn: Connection, heartbeat: HeartbeatData, data: ConsumerData, language: str, version: int, now_ms: int
    ) -> tuple[ToTell, bool]:
        """Return the members to notify, and whether the client should send its subscriptions in full next time."""
        if conn.closed:
            return [], False
        group = data.group_name
        consumers = self._consumers.get(group)
        if consumers is None:
            consumers = self._consumers[group] = ConsumerGroup(group)
        consumers.consume_type = data.consume_type or consumers.consume_type
        consumers.message_model = data.message_model or consumers.message_model
        consumers.consume_from_where = data.consume_from_where or consumers.consume_from_where
        changed = self._seen(consumers.members, conn, heartbeat.client_id, language, version, now_ms)
        self._groups_of.setdefault(conn, set()).add(group)
        fingerprint = heartbeat.heartbeat_fingerprint
        must_resend = fingerprint == 0 or consumers.fingerprint not in (0, fingerprint)
        if heartbeat.without_sub:
            must_resend = consumers.fingerprint != fingerprint
        else:
            consumers.fingerprint = fingerprint
            changed |= self._subscribe(consumers, data.subscription_data_set)
        return self._to_tell(consumers) if changed else [], must_resend

    def unregister_producer(self, conn: Connection, group: str) -> None:
        members = self._producers.get(group)
        if members is not None:
            known = members.pop(conn, None)
            if known is not None:
                self._drop_claim(known, group)
            if not members:
                del self._producers[group]
        groups = self._producing.get(conn)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._producing[conn]

    def unregister_consumer(self, conn: Connection, group: str) -> ToTell:
        """Return the members to notify."""
        self._groups_of.get(conn, set()).discard(group)
        return self._leave(conn, group)

    def disconnected(self, conn: Connection) -> ToTell:
        """Remove the clients of a closed connection. Return the members to notify."""
        self._since.pop(conn, None)
        for group in list(self._producing.get(conn, ())):
            self.unregister_producer(conn, group)
        return [told for group in self._groups_of.pop(conn, ()) for told in self._leave(conn, group)]

    def tick(self, now_ms: int) -> tuple[ToTell, list[Connection]]:
        """Remove clients without heartbeats. Return the members to notify and the connections to close."""
        oldest = now_ms - self._expiry_ms
        for group, members in list(self._producers.items()):
            for member in [member for member in members.values() if member.last_update_ms < oldest]:
                self.unregister_producer(member.conn, group)
        members_of_groups = (member for consumers in self._consumers.values() for member in consumers.members.values())
        silent = dict.fromkeys(member.conn for member in members_of_groups if member.last_update_ms < oldest)
        to_tell = [told for conn in silent for told in self.disconnected(conn)]
        return [(conn, group) for conn, group in to_tell if conn not in silent], list(silent)

    # Inside.

    def _seen(
        self, members: dict[Connection, Client], conn: Connection, client_id: str, language: str, version: int, now_ms: int
    ) -> bool:
        """Add or update a member. Return True if it is new."""
        used = self._since.get(conn)
        if used is None or used[0] != client_id:
            used = self._since[conn] = (client_id, now_ms)
        known = members.get(conn)
        if known is None:
            members[conn] = Client(conn, client_id, language, version, now_ms, used[1])
            return True
        known.client_id, known.language, known.version = client_id, language, version
        known.last_update_ms, known.since_ms = now_ms, used[1]
        return False

    def _subscribe(self, consumers: ConsumerGroup, wanted: list[SubscriptionData]) -> bool:
        """Update the subscriptions. Return True if the set of topics changed."""
        table = consumers.subscriptions
        changed = False
        for data in wanted:
            known = table.get(data.topic)
            if known is None:
                changed = True
                table[data.topic] = data
            elif data.sub_version > known.sub_version:
                table[data.topic] = data
        gone = table.keys() - {data.topic for data in wanted}
        for topic in gone:
            del table[topic]
            self._tag_codes.pop((consumers.name, topic), None)
        return changed or bool(gone)

    def _leave(self, conn: Connection, group: str) -> ToTell:
        consumers = self._consumers.get(group)
        if consumers is None or consumers.members.pop(conn, None) is None:
            return []
        if not consumers.members:
            del self._consumers[group]
            for topic in consumers.subscriptions:
                self._tag_codes.pop((group, topic), None)
            return []
        return self._to_tell(consumers)

    def _drop_claim(self, producer: Client, group: str) -> None:
        claims = self._claims[producer.client_id]
        del claims[producer.conn, group]
        if not claims:
            del self._claims[producer.client_id]

    def _to_tell(self, consumers: ConsumerGroup) -> ToTell:
        return [] if consumers.broadcasting else [(conn, consumers.name) for conn in consumers.members]


def _owner(claimants: Iterable[Client]) -> Client | None:
    """Return the connection that has used a client id longest, of those that are not silent."""
    found = list(claimants)
    if len(found) > 1:
        newest_ms = max(client.last_update_ms for client in found)
        found = [client for client in found if client.last_update_ms > newest_ms - SILENT_MS and not client.conn.closed] or found
    return min(found, key=lambda client: client.since_ms, default=None)


# Requests: 34, 35, 38, 46.


def _check_size(clients: ClientTable, conn: Connection, heartbeat: HeartbeatData) -> None:
    """Reject a heartbeat with which a connection would occupy too much memory, or keep the event loop too long."""
    consumers = {data.group_name: len(data.subscription_data_set) for data in heartbeat.consumer_data_set}
    producers = {data.group_name for data in heartbeat.producer_data_set}
    for what, count, limit in (
        ("groups", clients.group_count(conn, consumers.keys() | producers), MAX_GROUPS_PER_CONNECTION),
        ("subscriptions", clients.subscription_count(conn, consumers), MAX_SUBSCRIPTIONS_PER_CONNECTION),
        ("characters in a name", max(map(len, (heartbeat.client_id, *producers))), MAX_NAME),
    ):
        if count > limit:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the heartbeat would give this connection {count} {what}; {limit} is the maximum, use several clients",
            )


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    clients = broker.clients

    def heart_beat(conn: Connection, request: Command, now_ms: int) -> bytes:
        heartbeat = read_body(request, HeartbeatData.from_json)
        _check_size(clients, conn, heartbeat)
        must_resend = False
        for data in heartbeat.consumer_data_set:
            must_resend |= _heartbeat_of_consumer(broker, conn, request, heartbeat, data, now_ms)
        if broker.settings.enable_register_producer:
            for producer in heartbeat.producer_data_set:
                clients.heartbeat_of_producer(
                    conn, heartbeat.client_id, producer.group_name, request.language, request.version, now_ms
                )
        whole = heartbeat.heartbeat_fingerprint == 0
        ext = {"IS_SUPPORT_HEART_BEAT_V2": True, "IS_SUB_CHANGE": whole or must_resend}
        return encode_response(request, ResponseCode.SUCCESS, ext=ext)

    def unregister_client(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = UnregisterClientRequestHeader.decode(request.ext)
        if header.producer_group:
            clients.unregister_producer(conn, header.producer_group)
        if header.consumer_group:
            _tell(broker, clients.unregister_consumer(conn, header.consumer_group))
        return encode_response(request, ResponseCode.SUCCESS, ext={})

    def get_consumer_list_by_group(conn: Connection, request: Command, now_ms: int) -> bytes:
        group = GetConsumerListByGroupRequestHeader.decode(request.ext).consumer_group
        consumers = clients.consumer_group(group)
        if consumers is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
        return json_answer(request, GetConsumerListByGroupResponseBody(consumers.client_ids()), ext={})

    def check_client_config(conn: Connection, request: Command, now_ms: int) -> bytes:
        wanted = read_body(request, CheckClientRequestBody.from_json).subscription_data
        if (wanted.expression_type or sub.TAG) != sub.TAG:
            sub.check_expression_type(wanted.expression_type, enabled=broker.settings.enable_property_filter)
            try:
                sub.compile_sql(wanted.sub_string)
            except ValueError as error:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return encode_response(request, ResponseCode.SUCCESS)

    return {
        RequestCode.HEART_BEAT: heart_beat,
        RequestCode.UNREGISTER_CLIENT: unregister_client,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: get_consumer_list_by_group,
        RequestCode.CHECK_CLIENT_CONFIG: check_client_config,
    }


def connection_closed(broker: BrokerContext, conn: Connection) -> None:
    """Remove the clients of a closed connection. Call it for every connection."""
    _tell(broker, broker.clients.disconnected(conn))


def expire(broker: BrokerContext, now_ms: int) -> None:
    """Remove clients without heartbeats and close their connections. Call it every 10 s."""
    to_tell, silent = broker.clients.tick(now_ms)
    for conn in silent:
        conn.close("no heartbeat")
    _tell(broker, to_tell)


def _heartbeat_of_consumer(
    broker: BrokerContext, conn: Connection, request: Command, heartbeat: HeartbeatData, data: ConsumerData, now_ms: int
) -> bool:
    config = broker.groups.find_or_create(data.group_name, now_ms)
    if config is None:  # its pulls are rejected with the reason
        return False
    # Create and register the retry topic now, so that the consumer finds its route when it next refreshes routes.
    sys_flag = UNIT_SUBSCRIPTION if data.unit_mode else 0
    broker.topics.ensure(retry_topic(data.group_name), config.retry_queue_nums, PERM_READ_WRITE, now_ms, sys_flag=sys_flag)
    to_tell, must_resend = broker.clients.heartbeat_of_consumer(conn, heartbeat, data, request.language, request.version, now_ms)
    _tell(broker, to_tell)
    return must_resend


def _tell(broker: BrokerContext, to_tell: ToTell) -> None:
    if not broker.settings.notify_consumer_ids_changed_enable:
        return
    for conn, group in to_tell:
        config = broker.groups.find(group)
        if config is None or config.notify_consumer_ids_changed_enable:
            broker.notify(conn, NotifyConsumerIdsChangedRequestHeader(consumer_group=group), b"")
