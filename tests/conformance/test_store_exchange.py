"""One store directory opened by both brokers in turn, with equal content."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import rawcall, servers
from tests.conformance.agent import Agent
from tests.conformance.conftest import fresh
from tests.conformance.servers import TARGET, Cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(TARGET == "apache", reason="both sides are chosen by the test")

# Small files, so that log, queues and index consist of several.
SIZES = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
TOPICS = ("ExchangeA", "ExchangeB")
GROUP = "exchange-group"


@pytest.fixture
def running() -> Iterator[list[Cluster]]:
    clusters: list[Cluster] = []
    yield clusters
    for cluster in clusters:
        cluster.kill()


def fill(java: Agent, cluster: Cluster, mark: str) -> None:
    """Plain, keyed, tagged, compressed, large and batched messages, and the offsets of a group."""
    producer = fresh("producer")
    java.call("producer.start", name=producer, namesrv=cluster.namesrv)
    for topic in TOPICS:
        plain = [
            {
                "body": f"{mark} {topic} {i} ü中",
                "tags": f"Tag{i % 3}",
                "keys": f"{mark}-{i} all-{mark}",
                "flag": i,
                "properties": {"n": f"{i}"},
            }
            for i in range(300)
        ]
        large = [{"size": 200_000, "seed": i} for i in range(4)] + [{"size": 50_000}]
        results = java.call("producer.send", name=producer, topic=topic, messages=plain + large)
        assert all(result.get("status") == "SEND_OK" for result in results)
        for start in range(0, 1500, 100):
            batch = [{"body": f"{mark} batch {start + i}", "keys": f"{mark}-b{start + i}", "tags": "TagB"} for i in range(100)]
            queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 0}
            java.call("producer.send", name=producer, topic=topic, mode="batch", messages=batch, queue=queue)
    java.submit("producer.stop", name=producer)


def picture(java: Agent, cluster: Cluster, keys: list[str]) -> dict[str, Any]:
    """Return everything that a client can read from the directory."""
    name = fresh("puller")
    java.call("pull.start", name=name, group=GROUP, namesrv=cluster.namesrv)
    seen: dict[str, Any] = {}
    for topic in TOPICS:
        messages = java.call("pull.all", name=name, topic=topic)
        for one in messages:
            one["properties"] = {
                key: value for key, value in one["properties"].items() if key not in ("MIN_OFFSET", "MAX_OFFSET")
            }
        seen[f"messages of {topic}"] = sorted(messages, key=lambda one: (one["queueId"], one["queueOffset"]))
        for key in keys:
            found = java.call("pull.query", name=name, topic=topic, key=key, max=64)
            seen[f"{key} in {topic}"] = sorted((one["queueId"], one["queueOffset"]) for one in found)
        some = messages[:: len(messages) // 7]
        seen[f"ids of {topic}"] = [
            java.call("pull.view", name=name, topic=topic, msgId=one[kind])["sha256"]
            for one in some
            for kind in ("msgId", "offsetMsgId")
        ]
        queues = java.call("pull.queues", name=name, topic=topic)
        seen[f"queues of {topic}"] = [(one["queueId"], java.call("pull.max", name=name, queue=one)) for one in queues]
        seen[f"offsets in {topic}"] = [java.call("pull.committed", name=name, queue=one) for one in queues]
    java.submit("pull.stop", name=name)
    return seen


def commit(cluster: Cluster) -> None:
    """Offsets of a group without messages."""
    for topic in TOPICS:
        for queue_id in range(4):
            ext = {"consumerGroup": GROUP, "topic": topic, "queueId": str(queue_id), "commitOffset": str(10 + queue_id)}
            assert rawcall.call(cluster.broker, 15, ext)[0]["code"] == 0


def make_topics(cluster: Cluster) -> None:
    for topic in TOPICS:
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        assert rawcall.call(cluster.broker, 17, ext)[0]["code"] == 0
        wait_until(partial(rawcall.has_route, cluster.namesrv, topic), "the route")


def copy_store(source: Cluster, directory: Path) -> None:
    directory.mkdir()
    shutil.copytree(source.store, directory / "store", ignore=shutil.ignore_patterns("lock", "*.lock"))


@pytest.mark.parametrize("end", ["clean stop", "kill -9"])
def test_apache_serves_what_ours_wrote_and_ours_what_apache_added(
    newest: Agent, tmp_path: Path, running: list[Cluster], end: str
) -> None:
    ours = servers.start_apart(tmp_path / "ours", SIZES, "firearrow")
    running.append(ours)
    port = int(ours.broker.rsplit(":", 1)[1])
    make_topics(ours)
    rawcall.call(ours.broker, 200, body=b'{"groupName":"%s"}' % GROUP.encode())
    fill(newest, ours, "first")
    commit(ours)
    keys = ["first-17", "all-first", "first-b1499"]
    wait_until(lambda: len(picture_of_key(newest, ours, "first-b1499")) == 1, "the index")
    expected = picture(newest, ours, keys)
    assert sum(len(expected[f"messages of {topic}"]) for topic in TOPICS) == 2 * (300 + 5 + 1500)
    if end == "clean stop":
        for process in ours.processes:
            assert process.stop() == 0
    else:
        # Consumer offsets are saved every five seconds.
        offsets = ours.store / "config" / "consumerOffset.json"
        wait_until(lambda: offsets.exists() and GROUP in offsets.read_text(), "the written offsets")
        ours.kill()

    # Apache's broker opens a copy at the same address, because message ids contain it.
    copy_store(ours, tmp_path / "apache")
    apache = servers.start_apart(tmp_path / "apache", SIZES, "apache", port)
    running.append(apache)
    wait_until(lambda: len(picture_of_key(newest, apache, "first-b1499")) == 1, "Apache's index")
    assert differences(expected, picture(newest, apache, keys)) == []

    # It appends messages and is killed; our broker opens the result.
    fill(newest, apache, "second")
    wait_until(lambda: len(picture_of_key(newest, apache, "second-b1499")) == 1, "Apache's index")
    keys += ["second-17", "all-second", "second-b1499"]
    both = picture(newest, apache, keys)
    apache.kill()
    copy_store(apache, tmp_path / "again")
    again = servers.start_apart(tmp_path / "again", SIZES, "firearrow", port)
    running.append(again)
    assert differences(both, picture(newest, again, keys)) == []


def picture_of_key(java: Agent, cluster: Cluster, key: str) -> list[Any]:
    answer, body = rawcall.call(
        cluster.broker,
        12,
        {"topic": TOPICS[-1], "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9223372036854775807"},
    )
    return [body] if answer["code"] == 0 else []


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return the differences as short sentences."""
    told = []
    for what, value in expected.items():
        other = found[what]
        if value == other:
            continue
        if isinstance(value, list) and isinstance(other, list):
            unequal = [(a, b) for a, b in zip(value, other, strict=False) if a != b]
            told.append(f"{what}: {len(value)} expected, {len(other)} found, first unequal: {unequal[:1]}")
        else:
            told.append(f"{what}: {value} expected, {other} found")
    return told
