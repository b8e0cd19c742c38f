"""The route table: registered brokers, the topics they hold, and which brokers are alive.

A plain object driven by (event, now): no socket, no clock. A broker is known by its cluster, its name and its id within the name
(0 is the master); the connection it registered on is kept as an opaque `channel`.

Invariants
- Every address in `_brokers` has exactly one entry in `_live`, and vice versa.
- A broker name without addresses is gone from its cluster and from every topic; a topic without brokers is gone; so is a cluster.
- A topic's queues change only when the broker's data version does (so that a permission wiped here stays wiped while the broker
  repeats its registration), when the broker is new, or when the registration names only this topic.

Notifications to brokers (the lowest id of their name changed) are collected in `notices`; the caller sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from firearrow.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from firearrow.wire.bodies.topic import DataVersion, TopicConfig
from firearrow.wire.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader, RegisterBrokerResponseHeader

MASTER_ID = 0
PERM_WRITE = 2
PERM_READ = 4
DEFAULT_TIMEOUT_MS = 120_000
TOPIC_SYS_FLAG_UNIT = 1
TOPIC_SYS_FLAG_UNIT_SUB = 2
MAX_STATE_STEP = 1_000  # elections between two registrations of one broker id
_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"

Address = tuple[str, str]  # (cluster, ip:port)


@dataclass(slots=True)
class BrokerRegistration:
    """A broker's description of itself."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion
    topics: dict[str, TopicConfig]
    filter_servers: list[str] = field(default_factory=list)
    timeout_ms: int | None = None
    enable_acting_master: bool | None = None  # None from a broker that is too old to know it
    zone_name: str | None = None


@dataclass(slots=True)
class _Live:
    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Any
    ha_address: str
    left: list[Any] = field(default_factory=list)  # connections used before whose end has not been seen yet


class RouteTableFullError(Exception):
    """A registration would exceed a limit of the route table."""


class RouteTable:
    def __init__(self) -> None:
        self.max_routes = 250_000
        self.max_brokers = 10_000
        self._routes = 0  # pairs of topic and broker name
        self.support_acting_master = False
        self.notify_min_broker_id_changed = False
        self.delete_topic_with_broker_registration = False
        self.notices: list[tuple[Any, NotifyMinBrokerIdChangeRequestHeader]] = []  # (channel, notification)
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues
        self._brokers: dict[str, BrokerData] = {}  # by broker name
        self._clusters: dict[str, dict[str, None]] = {}  # cluster -> broker names in order of registration
        self._live: dict[Address, _Live] = {}
        self._filter_servers: dict[Address, list[str]] = {}

    # ---- brokers

    def register(self, registration: BrokerRegistration, channel: Any, now_ms: int) -> RegisterBrokerResponseHeader | None:
        """Register a broker or renew its registration. Return None if it must register with all its topics first.

        Raises RouteTableFullError. A registration whose state version cannot be that of the registered broker's successor is
        ignored as long as that broker is alive (`_is_implausible`).
        """
        self._check_limits(registration)
        if self._is_implausible(registration):
            return RegisterBrokerResponseHeader()
        self._forget_other_cluster(registration)
        broker = self._brokers.get(registration.broker_name)
        live = self._live.get((registration.cluster, registration.address))
        if broker is not None and live is not None and _has_left(live, channel):
            return self._master_of(broker, registration)
        known_ids = broker.broker_addrs if broker is not None else {}
        if self._is_outdated(registration, known_ids):
            return RegisterBrokerResponseHeader()
        if registration.broker_id not in known_ids and len(registration.topics) == 1:
            return None
        first = broker is None
        if broker is None:
            broker = BrokerData(cluster=registration.cluster, broker_name=registration.broker_name, broker_addrs={})
            self._brokers[registration.broker_name] = broker
        self._clusters.setdefault(registration.cluster, {})[registration.broker_name] = None
        broker.enable_acting_master = bool(registration.enable_acting_master)
        broker.zone_name = registration.zone_name
        lowest_before = min(broker.broker_addrs, default=registration.broker_id)
        first = self._place(broker, registration) or first

        key = (registration.cluster, registration.address)
        if self._owns_topics(broker, registration):
            self._take_topics(broker, registration, first)
        self._live[key] = _Live(
            registration.broker_name,
            now_ms,
            registration.timeout_ms or DEFAULT_TIMEOUT_MS,
            registration.data_version,
            channel,
            registration.ha_address,
            [] if live is None else [*live.left, *([] if live.channel is channel else [live.channel])],
        )
        if registration.filter_servers:
            self._filter_servers[key] = registration.filter_servers
        else:
            self._filter_servers.pop(key, None)
        if registration.broker_id < lowest_before:
            self._announce_lowest(broker, offline=None, ha_address=registration.ha_address)
        return self._master_of(broker, registration)

    def unregister(self, cluster: str, broker_name: str, address: str, channel: Any = None) -> None:
        live = self._live.get((cluster, address))
        if live is not None and live.broker_name == broker_name and not _has_left(live, channel):
            self._remove(cluster, broker_name, address)

    def channel_closed(self, channel: Any) -> list[str]:
        """Remove the brokers that registered on this connection. Return their addresses."""
        gone = [key for key, live in self._live.items() if live.channel is channel]
        for cluster, address in gone:
            self._remove(cluster, self._live[cluster, address].broker_name, address)
        for live in self._live.values():
            if live.left:
                live.left = [other for other in live.left if other is not channel]
        return [address for _, address in gone]

    def expire(self, now_ms: int) -> list[tuple[str, Any]]:
        """Remove the brokers whose heartbeat timed out. Return (address, channel) of each."""
        late = [(key, live) for key, live in self._live.items() if live.last_update_ms + live.timeout_ms < now_ms]
        for (cluster, address), live in late:
            self._remove(cluster, live.broker_name, address)
        return [(address, live.channel) for (_, address), live in late]

    def heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        live = self._live.get((cluster, address))
        return live.data_version if live is not None else None

    def has_broker(self, broker_name: str) -> bool:
        return broker_name in self._brokers

    def broker_at(self, cluster: str, address: str) -> str | None:
        """Return the name of the broker at an address."""
        live = self._live.get((cluster, address))
        return live.broker_name if live is not None else None

    @property
    def broker_count(self) -> int:
        return len(self._brokers)

    # ---- clients and tools

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, or None if no live broker holds it."""
        queues = self._topics.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not queues or not brokers:
            return None
        route = TopicRouteData(
            broker_datas=[_copy(broker) for broker in brokers],
            queue_datas=[replace(queue) for queue in queues.values()],
            filter_server_table=self._filter_table(brokers),
        )
        if self.support_acting_master and not topic.startswith(_MEMBER_TOPIC_PREFIX):
            _let_slaves_act(route)
        return route

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: _copy(broker) for name, broker in self._brokers.items()},
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def member_addresses(self, cluster: str, broker_name: str) -> dict[int, str]:
        """Return broker id -> address of the brokers with this name."""
        broker = self._brokers.get(broker_name)
        return dict(sorted(broker.broker_addrs.items())) if broker is not None and broker.cluster == cluster else {}

    def topics(self) -> TopicList:
        return TopicList(topic_list=list(self._topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        names = self._clusters.get(cluster, {})
        return TopicList(topic_list=[topic for topic, queues in self._topics.items() if not names.keys().isdisjoint(queues)])

    def system_topics(self) -> TopicList:
        """Return the topics named after clusters and brokers, and the address of a broker that knows the other ones."""
        names: dict[str, None] = {}
        for cluster, brokers in self._clusters.items():
            names[cluster] = None
            names.update(brokers)
        any_broker = next((next(iter(b.broker_addrs.values())) for b in self._brokers.values()), None)
        return TopicList(topic_list=list(names), broker_addr=any_broker)

    def topics_by_flag(self, wanted: Callable[[int], bool]) -> TopicList:
        """Return the topics whose system flag, as set by the first broker, satisfies the condition."""
        return TopicList(
            topic_list=[t for t, queues in self._topics.items() if wanted(next(iter(queues.values())).topic_sys_flag)]
        )

    # ---- operators

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove the write permission of all topics of a broker. Return the number of its topics."""
        return self._change_permission(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        return self._change_permission(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic, or its routes in one cluster. A broker that still has the topic restores it with its next change."""
        names = list(self._clusters.get(cluster, {})) if cluster else list(self._topics.get(topic, {}))
        for name in names:
            self._drop_queues(topic, name)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add a topic to known brokers. Entries for unknown brokers are ignored."""
        known = {queue.broker_name: queue for queue in queues if queue.broker_name in self._brokers}
        if known:
            present = self._topics.setdefault(topic, {})
            self._routes += len(known.keys() - present.keys())
            present.update(known)

    # ---- internal

    def _forget_other_cluster(self, registration: BrokerRegistration) -> None:
        """Move a broker name that registers with another cluster: a name belongs to one cluster."""
        broker = self._brokers.get(registration.broker_name)
        if broker is not None and broker.cluster != registration.cluster:
            for address in list(broker.broker_addrs.values()):
                self._remove(broker.cluster, registration.broker_name, address)

    def _is_outdated(self, registration: BrokerRegistration, known_ids: dict[int, str]) -> bool:
        """Return True if another address holds this id with a newer state: this master was deposed and does not know it yet."""
        other = known_ids.get(registration.broker_id)
        if other is None or other == registration.address:
            return False
        live = self._live.get((registration.cluster, other))
        return (
            live is not None and 0 < live.data_version.state_version - registration.data_version.state_version <= MAX_STATE_STEP
        )

    def _is_implausible(self, registration: BrokerRegistration) -> bool:
        """Return True if another address holds this id and the state version is too far ahead of its own.

        The state version is the term of an election, or 0, so a successor is a few steps ahead. Without this rule, one forged
        registration with a huge version would replace a broker for ever. A registration from another cluster would replace all
        brokers of the name, so it is compared with each of them.
        """
        broker = self._brokers.get(registration.broker_name)
        if broker is None:
            return False
        replaces_all = broker.cluster != registration.cluster
        for broker_id, address in broker.broker_addrs.items():
            if address != registration.address and (replaces_all or broker_id == registration.broker_id):
                live = self._live.get((broker.cluster, address))
                if (
                    live is not None
                    and registration.data_version.state_version - live.data_version.state_version > MAX_STATE_STEP
                ):
                    return True
        return False

    def _check_limits(self, registration: BrokerRegistration) -> None:
        if (registration.cluster, registration.address) not in self._live and len(self._live) >= self.max_brokers:
            raise RouteTableFullError(f"{len(self._live)} brokers are registered, maxBrokers is {self.max_brokers}")
        if self._routes + len(registration.topics) > self.max_routes:
            known, name = self._topics, registration.broker_name
            more = sum(1 for topic in registration.topics if name not in known.get(topic, ()))
            if self._routes + more > self.max_routes:
                raise RouteTableFullError(
                    f"{more} more topics of {name} would exceed maxRoutes={self.max_routes}: {self._routes} are registered"
                )

    def _place(self, broker: BrokerData, registration: BrokerRegistration) -> bool:
        """Assign the address to its id and remove it from any other. Return True if the id is new."""
        for other_id in [
            i for i, address in broker.broker_addrs.items() if address == registration.address and i != registration.broker_id
        ]:
            del broker.broker_addrs[other_id]
        before = broker.broker_addrs.get(registration.broker_id)
        if before is not None and before != registration.address:
            self._live.pop((registration.cluster, before), None)
            self._filter_servers.pop((registration.cluster, before), None)
        broker.broker_addrs[registration.broker_id] = registration.address
        return before is None

    @staticmethod
    def _owns_topics(broker: BrokerData, registration: BrokerRegistration) -> bool:
        """Return True for the broker that defines the topics of its name: the master or an acting master."""
        acting = registration.enable_acting_master is not None and registration.broker_id == min(broker.broker_addrs)
        return registration.broker_id == MASTER_ID or acting

    def _take_topics(self, broker: BrokerData, registration: BrokerRegistration, first: bool) -> None:
        live = self._live.get((registration.cluster, registration.address))
        news = first or live is None or live.data_version != registration.data_version or len(registration.topics) == 1
        for topic, config in registration.topics.items():
            if news or registration.broker_name not in self._topics.get(topic, {}):
                perm = config.perm
                if registration.broker_id != MASTER_ID and broker.enable_acting_master:
                    perm &= ~PERM_WRITE
                queues = self._topics.setdefault(topic, {})
                self._routes += registration.broker_name not in queues
                queues[registration.broker_name] = QueueData(
                    broker_name=registration.broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=perm,
                    topic_sys_flag=config.topic_sys_flag,
                )
        if news and self.delete_topic_with_broker_registration and len(registration.topics) > 1:
            for topic in [
                t for t, queues in self._topics.items() if registration.broker_name in queues and t not in registration.topics
            ]:
                self._drop_queues(topic, registration.broker_name)

    def _master_of(self, broker: BrokerData, registration: BrokerRegistration) -> RegisterBrokerResponseHeader:
        """Return the response to a registration: the addresses of the master, for slaves only."""
        master = broker.broker_addrs.get(MASTER_ID, "")
        live = self._live.get((registration.cluster, master))
        if registration.broker_id == MASTER_ID or live is None:
            return RegisterBrokerResponseHeader()
        return RegisterBrokerResponseHeader(ha_server_addr=live.ha_address, master_addr=master)

    def _remove(self, cluster: str, broker_name: str, address: str) -> None:
        self._live.pop((cluster, address), None)
        self._filter_servers.pop((cluster, address), None)
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        lowest_before = min(broker.broker_addrs, default=None)
        for broker_id in [i for i, a in broker.broker_addrs.items() if a == address]:
            del broker.broker_addrs[broker_id]
        if not broker.broker_addrs:
            self._remove_name(cluster, broker_name)
            return
        if broker.enable_acting_master and MASTER_ID not in broker.broker_addrs:
            self._change_permission(broker_name, lambda perm: perm & ~PERM_WRITE)
        if min(broker.broker_addrs) != lowest_before:
            self._announce_lowest(broker, offline=address, ha_address=None)

    def _remove_name(self, cluster: str, broker_name: str) -> None:
        del self._brokers[broker_name]
        names = self._clusters.get(cluster, {})
        names.pop(broker_name, None)
        if not names:
            self._clusters.pop(cluster, None)
        for topic in [t for t, queues in self._topics.items() if broker_name in queues]:
            self._drop_queues(topic, broker_name)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._topics.get(topic)
        if queues is not None:
            self._routes -= queues.pop(broker_name, None) is not None
            if not queues:
                del self._topics[topic]

    def _change_permission(self, broker_name: str, changed: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queue.perm = changed(queue.perm)
                count += 1
        return count

    def _filter_table(self, brokers: Iterable[BrokerData]) -> dict[str, list[str]]:
        table = {}
        for broker in brokers:
            for address in broker.broker_addrs.values():
                servers = self._filter_servers.get((broker.cluster, address))
                if servers:
                    table[address] = servers
        return table

    def _announce_lowest(self, broker: BrokerData, offline: str | None, ha_address: str | None) -> None:
        if not self.notify_min_broker_id_changed:
            return
        lowest = min(broker.broker_addrs)
        notice = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=lowest,
            broker_name=broker.broker_name,
            min_broker_addr=broker.broker_addrs[lowest],
            offline_broker_addr=offline,
            ha_broker_addr=ha_address,
        )
        for broker_id, address in broker.broker_addrs.items():
            # A newly registered broker with the lowest id knows that itself, unless it is alone.
            if offline is None and broker_id == lowest and len(broker.broker_addrs) > 1:
                continue
            live = self._live.get((broker.cluster, address))
            if live is not None:
                self.notices.append((live.channel, notice))


def _has_left(live: _Live, channel: Any) -> bool:
    """Return True for a connection the broker has left. Its end must not remove the broker, which is back on another one."""
    return any(other is channel for other in live.left)


def _copy(broker: BrokerData) -> BrokerData:
    """Return a copy with sorted ids that the caller may modify."""
    return replace(broker, broker_addrs=dict(sorted(broker.broker_addrs.items())))


def _let_slaves_act(route: TopicRouteData) -> None:
    """List the lowest slave as master where a name has lost its master and its topic is read-only."""
    read_only = {queue.broker_name for queue in route.queue_datas if not queue.perm & PERM_WRITE}
    for broker in route.broker_datas:
        if broker.enable_acting_master and MASTER_ID not in broker.broker_addrs and broker.broker_name in read_only:
            address = broker.broker_addrs.pop(min(broker.broker_addrs))
            broker.broker_addrs = {MASTER_ID: address, **broker.broker_addrs}
