"""Allocation strategies: the six ways to share the queues among the members of a group, identical to the Java client's.

Every member computes its share from the same two sorted lists. Members that compute differently consume queues twice or not at
all, so all members of a group, in whatever language, must use the same strategy.

    N queues, C members, i the index of the computing member, m = N mod C

    AVG               floor(N/C) adjacent queues, one more for each of the first m members
    AVG_BY_CIRCLE     the queues i, i + C, i + 2C, ...
    CONSISTENT_HASH   a ring with 10 virtual nodes per member, at the hash of `<client id>-<r>`, r = 0..9; a queue belongs to the
                      first node at or after the hash of `MessageQueue [topic=T, brokerName=B, queueId=Q]`. The hash is the first
                      four bytes of the MD5, big-endian, unsigned
    CONFIG            the configured queues
    MACHINE_ROOM      the P queues of brokers named `<room>@<name>` with a given room: floor(P/C) adjacent ones, then one of the
                      rest for each of the first P mod C members
    MACHINE_ROOM_NEARBY-<inner>   the queues of the member's own room, shared by the inner strategy among its members, and the
                      queues of rooms without members, shared among all members

A client that is not in the list of members gets no queues, except with CONFIG.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from hashlib import md5
from typing import Protocol

from firearrow.client.message import MessageQueue

VIRTUAL_NODES = 10


class AllocationStrategy(Protocol):
    """Interface of the strategies that distribute queues over members. Implement it for a custom strategy."""

    @property
    def name(self) -> str:
        """Apache's name of the strategy, which a consumer reports to operators."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of the member `client_id`. Both lists are sorted and the same for every member."""


class Averagely:
    """Strategy that assigns adjacent queues in equal shares. The default."""

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        size, rest = divmod(len(queues), len(client_ids))
        start = index * size + min(index, rest)
        return list(queues[start : start + size + (1 if index < rest else 0)])


class AveragelyByCircle:
    """Strategy that assigns queues to the members in turn."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class ConsistentHash:
    """Strategy with consistent hashing: few queues move when the members change, but the shares are uneven."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes is {virtual_nodes}, expected at least 1 (all members of the group need the same)")
        self.virtual_nodes = virtual_nodes

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        # If two nodes have the same hash, the later one wins, as in the Java client's map.
        ring = {_ring_hash(f"{member}-{node}"): member for member in client_ids for node in range(self.virtual_nodes)}
        nodes = sorted(ring)
        return [queue for queue in queues if ring[_at_or_after(nodes, _ring_hash(_ring_key(queue)))] == client_id]


class Configured:
    """Strategy that assigns a fixed list of queues, independent of the other members."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self.queues)


class MachineRoom:
    """Strategy that assigns only the queues of the given machine rooms. Broker names have the form `room@broker`."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        inside = [queue for queue in queues if self._room(queue) in self.rooms]
        index, members = client_ids.index(client_id), len(client_ids)
        size, rest = divmod(len(inside), members)
        mine = inside[index * size : (index + 1) * size]
        return [*mine, inside[size * members + index]] if index < rest else mine

    @staticmethod
    def _room(queue: MessageQueue) -> str | None:
        parts = queue.broker_name.split("@")
        return parts[0] if len(parts) == 2 else None


class MachineRoomNearby:
    """Strategy that assigns queues to consumers in the machine room of the broker.

    All consumers share the queues of rooms without consumers.

    `queue_room` and `consumer_room` return the room of a queue and of a client id. They must be the same for every member.
    """

    def __init__(
        self, inner: AllocationStrategy, *, queue_room: Callable[[MessageQueue], str], consumer_room: Callable[[str], str]
    ) -> None:
        self.inner = inner
        self._queue_room = queue_room
        self._consumer_room = consumer_room

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_in.setdefault(_room_of(queue, self._queue_room(queue)), []).append(queue)
        members_in: dict[str, list[str]] = {}
        for member in client_ids:
            members_in.setdefault(_room_of(member, self._consumer_room(member)), []).append(member)
        here = self._consumer_room(client_id)
        mine = self.inner.allocate(group, client_id, queues_in.pop(here, []), members_in[here])
        for room in sorted(queues_in):
            if room not in members_in:
                mine += self.inner.allocate(group, client_id, queues_in[room], client_ids)
        return mine


def _room_of(what: MessageQueue | str, room: str) -> str:
    if not room:
        raise ValueError(f"{what} has no machine room: queue_room and consumer_room must return one for every queue and client")
    return room


def _ring_key(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _ring_hash(key: str) -> int:
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def _at_or_after(nodes: list[int], value: int) -> int:
    at = bisect_left(nodes, value)
    return nodes[at] if at < len(nodes) else nodes[0]
