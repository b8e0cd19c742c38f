"""Start position of a new group: the first message of a recently created queue, else the position that the consumer requests."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import servers
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.store.archives import unpack
from tests.support.waiting import wait_until

FIXTURES = Path(__file__).parent.parent / "fixtures" / "store"
CASE = "d-retention"
TOPIC = "FxA"


@pytest.mark.parametrize("position", ["FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP"])
def test_a_new_group_reads_a_young_topic_from_its_first_message(
    java: Agent, cluster: Cluster, producer: str, make_topic: MakeTopic, position: str
) -> None:
    """While the first message of a queue is in memory, the broker answers 0, whatever position the consumer requests."""
    topic = make_topic()
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": f"{i}"} for i in range(12)])
    name = fresh("push")

    start: dict[str, Any] = {"from": position}
    java.call("push.start", name=name, group=fresh("young"), namesrv=cluster.namesrv, topics={topic: "*"}, **start)

    messages = java.consumed(name, 12)
    assert sorted(int(one["body"]) for one in messages) == list(range(12))
    java.submit("push.stop", name=name)


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    with gzip.open(FIXTURES / f"{CASE}.manifest.json.gz") as file:
        value: dict[str, Any] = json.load(file)
    return value


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory, manifest: dict[str, Any]) -> Iterator[Cluster]:
    """A server on a directory of Apache's whose oldest files were deleted, so that the minimum offsets are above 0."""
    directory = tmp_path_factory.mktemp("aged")
    unpack(CASE, directory)
    # The directory uses unusual file sizes, and its files must not expire.
    names = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "mappedFileSizeTimerLog")
    settings = {name: manifest["brokerConfig"][name] for name in names}
    running = servers.start_apart(directory, {**settings, "fileReservedTime": "8760"})
    yield running
    running.dispose()


def places(messages: list[dict[str, Any]], since_ms: int = 0) -> set[tuple[int, int]]:
    return {
        (one["queueId"], one["queueOffset"]) for one in messages if one["topic"] == TOPIC and one["storeTimestamp"] >= since_ms
    }


def start(java: Agent, aged: Cluster, **options: Any) -> str:
    name = fresh("push")
    java.call("push.start", name=name, group=fresh("late"), namesrv=aged.namesrv, topics={TOPIC: "*"}, **options)
    return name


def test_from_the_first_message_that_is_left(java: Agent, aged: Cluster, manifest: dict[str, Any]) -> None:
    stored = places(manifest["messages"])
    name = start(java, aged, **{"from": "FIRST_OFFSET"})

    # After an offset reset the 4.9 client waits half a minute before it pulls again.
    found = places(java.consumed(name, len(stored), 75_000))

    assert stored <= found
    java.submit("push.stop", name=name)


def test_from_a_moment(java: Agent, aged: Cluster, manifest: dict[str, Any]) -> None:
    """The consumer's timestamp has a resolution of seconds."""
    times = sorted(one["storeTimestamp"] for one in manifest["messages"] if one["topic"] == TOPIC)
    second = (times[len(times) // 2] + 999) // 1000
    stored = places(manifest["messages"], second * 1000)
    assert 0 < len(stored) < len(times)
    moment = time.strftime("%Y%m%d%H%M%S", time.gmtime(second))
    name = start(java, aged, timestamp=moment, **{"from": "TIMESTAMP"})

    found = places(java.consumed(name, len(stored)))

    assert stored <= found
    assert not found & (places(manifest["messages"]) - stored)
    java.submit("push.stop", name=name)


def test_from_the_end(java: Agent, aged: Cluster, manifest: dict[str, Any]) -> None:
    name = start(java, aged, **{"from": "LAST_OFFSET"})
    wait_until(lambda: len([one for one in java.call("push.owned", name=name) if one["topic"] == TOPIC]) == 4, "the queues")
    producer = fresh("producer")
    java.call("producer.start", name=producer, namesrv=aged.namesrv)
    mine = [{"body": f"{producer}-{i}"} for i in range(8)]
    results = java.call("producer.send", name=producer, topic=TOPIC, messages=mine)
    assert all(one["status"] == "SEND_OK" for one in results)

    messages = java.consumed(name, 8)

    assert sorted(one["body"] for one in messages) == [f"{producer}-{i}" for i in range(8)]
    assert places(messages) == {(one["queueId"], one["queueOffset"]) for one in results}
    java.submit("push.stop", name=name)
    java.submit("producer.stop", name=producer)


def test_old_messages_are_found_by_key_and_place(java: Agent, aged: Cluster, manifest: dict[str, Any]) -> None:
    """Messages indexed by Apache's broker can be queried on either broker."""
    name = fresh("puller")
    java.call("pull.start", name=name, group=name, namesrv=aged.namesrv)
    keyed = [one for one in manifest["messages"] if one["topic"] == TOPIC and one["keys"]]

    for one in keyed[:: len(keyed) // 5]:
        found = java.call("pull.query", name=name, topic=TOPIC, key=one["keys"].split()[0])
        assert (one["queueId"], one["queueOffset"]) in places(found)
    java.submit("pull.stop", name=name)
