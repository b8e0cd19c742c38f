"""Who of a group consumes which queue: the six strategies, to the letter what the Java client computes.

Every member decides for itself, from the same two sorted lists, and nobody compares notes: members that compute differently
consume queues twice or not at all. All members of a group, of whatever language, must therefore use one strategy.

    N queues, C members, i the place of the deciding member, m = N mod C

    AVG               floor(N/C) queues in one run, one more for each of the first m members
    AVG_BY_CIRCLE     the queues i, i + C, i + 2C, ...
    CONSISTENT_HASH   a ring with 10 places a member, at the hash of `<client id>-<r>`, r = 0..9; a queue belongs to the first
                      place at or after the hash of `MessageQueue [topic=T, brokerName=B, queueId=Q]`. The hash is the first four
                      bytes of the MD5, big-endian, without a sign
    CONFIG            the queues it was given
    MACHINE_ROOM      only brokers called `<room>@<name>` with a room of the given ones, P queues: floor(P/C) in one run, then one
                      of the rest for each of the first P mod C members
    MACHINE_ROOM_NEARBY-<inner>   the queues of the member's own room, shared by the inner strategy among the members there; and
                      the queues of every room where no member is, shared among all members

A member that is not in the list of members gets nothing (except with CONFIG, which asks nobody).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from hashlib import md5
from typing import Protocol

from firearrow.client.message import MessageQueue

VIRTUAL_NODES = 10


class AllocationStrategy(Protocol):
    @property
    def name(self) -> str:
        """Apache's name of the strategy, which a consumer reports to operators."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of the member `client_id`. Both lists are sorted and the same for every member."""


class Averagely:
    """Neighbouring queues in runs of equal length: the default."""

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        place = client_ids.index(client_id)
        size, rest = divmod(len(queues), len(client_ids))
        start = place * size + min(place, rest)
        return list(queues[start : start + size + (1 if place < rest else 0)])


class AveragelyByCircle:
    """Queues dealt out in turn."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class ConsistentHash:
    """When members come and go, few queues change hands; the shares are uneven."""

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
        # Where two places have one hash, the later one has it, as in the Java client's map.
        ring = {_ring_hash(f"{member}-{node}"): member for member in client_ids for node in range(self.virtual_nodes)}
        places = sorted(ring)
        return [queue for queue in queues if ring[_at_or_after(places, _ring_hash(_ring_key(queue)))] == client_id]


class Configured:
    """A fixed list of queues, whatever the other members do."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(self.queues)


class MachineRoom:
    """Only the queues of certain rooms; the broker names say which room a queue is in: `room@broker`."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        inside = [queue for queue in queues if self._room(queue) in self.rooms]
        place, members = client_ids.index(client_id), len(client_ids)
        size, rest = divmod(len(inside), members)
        mine = inside[place * size : (place + 1) * size]
        return [*mine, inside[size * members + place]] if place < rest else mine

    @staticmethod
    def _room(queue: MessageQueue) -> str | None:
        parts = queue.broker_name.split("@")
        return parts[0] if len(parts) == 2 else None


class MachineRoomNearby:
    """Queues go to consumers in the same room as the broker; a room without consumers is looked after by everybody.

    `queue_room` and `consumer_room` say in which room a queue's broker and a client id are. Every member must answer alike.
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
        raise ValueError(f"no machine room is known for {what}: queue_room and consumer_room must name one for everything")
    return room


def _ring_key(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _ring_hash(key: str) -> int:
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def _at_or_after(places: list[int], value: int) -> int:
    at = bisect_left(places, value)
    return places[at] if at < len(places) else places[0]
