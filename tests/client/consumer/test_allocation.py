"""The strategies against what Apache's Java client 5.5.0 computed for the same queues and members."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.consumer.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
)
from firearrow.client.message import MessageQueue

# Queues 0 to perBroker - 1 of topic TopicT on each of these; client ids begin with the room they are in.
BROKERS = ("east@a", "east@b", "north@a", "west@a")
RECORDED: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parents[2] / "fixtures/client/allocation-java-5.5.0.json.gz").read_bytes())
)
NEARBY = MachineRoomNearby(
    Averagely(), queue_room=lambda queue: queue.broker_name.split("@")[0], consumer_room=lambda member: member.split("-")[0]
)
STRATEGIES: dict[str, AllocationStrategy] = {
    "AVG": Averagely(),
    "AVG_BY_CIRCLE": AveragelyByCircle(),
    "CONSISTENT_HASH": ConsistentHash(),
    "MACHINE_ROOM": MachineRoom(["east", "west"]),
    "MACHINE_ROOM_NEARBY": NEARBY,
}
ALL = [MessageQueue("T", "b", queue_id) for queue_id in range(5)]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_member_gets_what_the_java_client_computes(name: str) -> None:
    cases = [case for case in RECORDED if case["strategy"] == name]
    assert len(cases) == 18
    for case in cases:
        queues = sorted(MessageQueue("TopicT", broker, n) for broker in BROKERS for n in range(case["perBroker"]))
        for member, expected in zip(case["members"], case["shares"], strict=True):
            share = STRATEGIES[name].allocate("g", member, queues, case["members"])
            assert [f"{queue.broker_name}:{queue.queue_id}" for queue in share] == expected, (member, case)


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY"])
def test_every_queue_has_exactly_one_owner(name: str) -> None:
    for members in range(1, 9):
        ids = sorted(f"{'east' if n % 2 else 'west'}-{n}" for n in range(members))
        queues = sorted(MessageQueue("T", broker, n) for broker in BROKERS for n in range(4))
        shares = [STRATEGIES[name].allocate("g", member, queues, ids) for member in ids]
        assert sorted(queue for share in shares for queue in share) == queues


def test_non_member_gets_no_queues() -> None:
    for strategy in STRATEGIES.values():
        assert strategy.allocate("g", "stranger", ALL, ["a", "b"]) == []


def test_configured_queues_are_what_was_configured() -> None:
    assert Configured(ALL[1:3]).allocate("g", "anybody", ALL, ["a"]) == ALL[1:3]


def test_queues_of_other_rooms_are_not_assigned() -> None:
    queues = [MessageQueue("T", name, 0) for name in ("east@a", "plain", "south@a", "a@b@c", "west@b")]
    share = MachineRoom(["east", "west"]).allocate("g", "me", queues, ["me"])
    assert [queue.broker_name for queue in share] == ["east@a", "west@b"]


def test_missing_room_is_an_error() -> None:
    lost = MachineRoomNearby(Averagely(), queue_room=lambda queue: "", consumer_room=lambda member: "east")
    with pytest.raises(ValueError, match="has no machine room"):
        lost.allocate("g", "me", ALL, ["me"])


def test_names_are_apaches() -> None:
    assert [strategy.name for strategy in STRATEGIES.values()] == [
        "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="virtual_nodes is 0"):
        ConsistentHash(0)
