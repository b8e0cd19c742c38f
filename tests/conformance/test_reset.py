"""Offset reset to a time, backwards and forwards, with and without connected consumers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance import builds
from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

Mqadmin = Callable[..., str]


def send_two_waves(java: Agent, producer: str, topic: str) -> tuple[set[str], set[str], int]:
    """Two batches of messages and a time between them."""
    first = [f"first-{i}" for i in range(12)]
    second = [f"second-{i}" for i in range(12)]
    assert all(
        one["status"] == "SEND_OK"
        for one in java.call("producer.send", name=producer, topic=topic, messages=[{"body": b} for b in first])
    )
    time.sleep(0.3)
    between = int(time.time() * 1000)
    time.sleep(0.3)
    assert all(
        one["status"] == "SEND_OK"
        for one in java.call("producer.send", name=producer, topic=topic, messages=[{"body": b} for b in second])
    )
    return set(first), set(second), between


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [one["body"] for one in messages]


def test_a_running_group_gets_the_second_wave_again(
    java: Agent, cluster: Cluster, mqadmin: Mqadmin, producer: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    group = fresh("replaying")
    first, second, between = send_two_waves(java, producer, topic)
    name = fresh("push")
    java.call("push.start", name=name, group=group, namesrv=cluster.namesrv, topics={topic: "*"})
    java.consumed(name, 24)

    printed = mqadmin("resetOffsetByTime", "-n", cluster.namesrv, "-g", group, "-t", topic, "-s", str(between))

    assert re.search(rf"{cluster.broker_name}\s+0\s+3", printed), printed
    # After an offset reset the 4.9 client waits half a minute before it pulls again.
    again = java.consumed(name, 36, 75_000)[24:]
    assert sorted(bodies(again)) == sorted(second), "the second wave exactly once more"
    assert first.isdisjoint(bodies(again))
    java.submit("push.stop", name=name)


def test_a_stopped_group_starts_at_the_given_time(
    java: Agent, cluster: Cluster, mqadmin: Mqadmin, producer: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    group = fresh("replaying")
    _, second, between = send_two_waves(java, producer, topic)
    name = fresh("push")
    java.call("push.start", name=name, group=group, namesrv=cluster.namesrv, topics={topic: "*"})
    java.consumed(name, 24)
    java.call("push.stop", name=name)

    printed = mqadmin("resetOffsetByTime", "-n", cluster.namesrv, "-g", group, "-t", topic, "-s", str(between))
    assert cluster.broker_name in printed, printed

    again = fresh("push")
    java.call("push.start", name=again, group=group, namesrv=cluster.namesrv, topics={topic: "*"})
    assert sorted(bodies(java.consumed(again, 12, 75_000))) == sorted(second)
    java.submit("push.stop", name=again)


def test_a_group_can_skip_everything(
    java: Agent, cluster: Cluster, mqadmin: Mqadmin, producer: str, make_topic: MakeTopic
) -> None:
    if java.version != builds.SERVER_VERSION:
        pytest.skip("takes 20 s (the client's own pace): one client is enough")
    topic = make_topic()
    group = fresh("skipping")
    send_two_waves(java, producer, topic)
    name = fresh("push")
    # The broker knows the group only after it has consumed something.
    java.call("push.start", name=name, group=group, namesrv=cluster.namesrv, topics={topic: "*"})
    java.consumed(name, 24)
    java.call("push.stop", name=name)
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": f"skipped-{i}"} for i in range(8)])

    printed = mqadmin("resetOffsetByTime", "-n", cluster.namesrv, "-g", group, "-t", topic, "-s", "-1")
    assert cluster.broker_name in printed, printed
    java.call("producer.send", name=producer, topic=topic, messages=[{"body": "fresh"}])

    again = fresh("push")
    java.call("push.start", name=again, group=group, namesrv=cluster.namesrv, topics={topic: "*"})
    assert bodies(java.consumed(again, 1, 75_000)) == ["fresh"]
    java.submit("push.stop", name=again)


def test_progress_shows_the_reset(java: Agent, cluster: Cluster, mqadmin: Mqadmin, producer: str, make_topic: MakeTopic) -> None:
    topic = make_topic(read=1, write=1)
    group = fresh("showing")
    _, _, between = send_two_waves(java, producer, topic)
    name = fresh("push")
    java.call("push.start", name=name, group=group, namesrv=cluster.namesrv, topics={topic: "*"}, persistMs=500)
    java.consumed(name, 24)
    java.call("push.stop", name=name)

    def lag() -> list[tuple[str, str]]:
        printed = mqadmin("consumerProgress", "-n", cluster.namesrv, "-g", group)
        return re.findall(rf"^{topic}\s+{cluster.broker_name}\s+0\s+(\d+)\s+(\d+)", printed, re.MULTILINE)

    wait_until(lambda: lag() == [("24", "24")], "everything consumed")
    mqadmin("resetOffsetByTime", "-n", cluster.namesrv, "-g", group, "-t", topic, "-s", str(between))
    assert lag() == [("24", "12")]
