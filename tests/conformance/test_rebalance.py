"""Consumers that join and leave: every queue has exactly one owner, nothing is lost, and rebalancing is fast."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agent import Agent
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster
from tests.support.waiting import wait_until

QUEUES = 8


class Group:
    """The members of one consumer group, in any process."""

    def __init__(self, cluster: Cluster, topic: str, **options: Any) -> None:
        self.cluster = cluster
        self.topic = topic
        self.name = fresh("team")
        self.options = options
        self.members: dict[str, Agent] = {}
        self.gone: list[dict[str, Any]] = []

    def join(self, agent: Agent) -> str:
        member = fresh("member")
        agent.call(
            "push.start", name=member, namesrv=self.cluster.namesrv, group=self.name, topics={self.topic: "*"}, **self.options
        )
        self.members[member] = agent
        return member

    def leave(self, member: str) -> None:
        agent = self.members.pop(member)
        self.gone += agent.call("push.stop", name=member)

    def owned(self) -> dict[str, set[int]]:
        return {
            member: {one["queueId"] for one in agent.call("push.owned", name=member) if one["topic"] == self.topic}
            for member, agent in self.members.items()
        }

    def is_balanced(self) -> bool:
        """Every queue belongs to one member, and the shares differ by at most one."""
        shares = list(self.owned().values())
        each = Counter(queue for share in shares for queue in share)
        sizes = sorted(map(len, shares))
        return sorted(each) == list(range(QUEUES)) and set(each.values()) == {1} and sizes[-1] - sizes[0] <= 1

    def received(self) -> list[dict[str, Any]]:
        now = [one for member, agent in self.members.items() for one in agent.call("push.messages", name=member)["messages"]]
        return self.gone + now

    def stop(self) -> None:
        for member, agent in self.members.items():
            agent.submit("push.stop", name=member)


@pytest.fixture
def load(newest: Agent, cluster: Cluster) -> Iterator[Load]:
    one = Load(newest, cluster)
    yield one
    one.stop()


class Load:
    """Continuous sender of small messages; `sent` are the acknowledged bodies."""

    def __init__(self, agent: Agent, cluster: Cluster) -> None:
        self.agent = agent
        self.producer = fresh("load")
        self.sent: list[str] = []
        self.failed: list[dict[str, Any]] = []
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        agent.call("producer.start", name=self.producer, namesrv=cluster.namesrv)

    def run(self, topic: str) -> None:
        self._thread = threading.Thread(target=self._run, args=(topic,), daemon=True)
        self._thread.start()

    def finish(self) -> list[str]:
        self._end.set()
        if self._thread is not None:
            self._thread.join(30)
        return self.sent

    def stop(self) -> None:
        self.finish()
        self.agent.call("producer.stop", name=self.producer)

    def _run(self, topic: str) -> None:
        for number in range(100_000):
            if self._end.wait(0.02):
                return
            bodies = [f"{number}-{i}" for i in range(8)]
            results = self.agent.call(
                "producer.send", name=self.producer, topic=topic, messages=[{"body": body} for body in bodies]
            )
            for body, result in zip(bodies, results, strict=True):
                if result.get("status") == "SEND_OK":
                    self.sent.append(body)
                else:
                    self.failed.append(result)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_members_join_and_leave_under_load(
    agents: dict[str, Agent], cluster: Cluster, make_topic: MakeTopic, load: Load, orderly: bool
) -> None:
    """4.9 and 5.x clients in one group allocate the queues identically."""
    old, new = agents["4.9.8"], agents["5.5.0"]
    topic = make_topic(read=QUEUES, write=QUEUES)
    group = Group(cluster, topic, orderly=orderly)
    load.run(topic)

    first = group.join(new)
    # An orderly consumer releases a queue at its next rebalance (20 s).
    limit_s = 90 if orderly else 60
    wait_until(group.is_balanced, "one member owns all", limit_s)
    second = group.join(old)
    took_join = wait_until(group.is_balanced, "two members share", limit_s)
    if not orderly:
        group.join(new)
        wait_until(group.is_balanced, "three members share", limit_s)
        group.leave(second)
        wait_until(group.is_balanced, "two are left", limit_s)
    group.leave(first)
    took_leave = wait_until(group.is_balanced, "one is left", limit_s)

    sent = load.finish()
    assert load.failed == []
    assert len(sent) > 100
    missing: set[str] = set()

    def all_there() -> bool:
        missing.clear()
        missing.update(set(sent) - {one["body"] for one in group.received()})
        return not missing

    try:
        wait_until(all_there, "every message", 60)
    except AssertionError:
        pytest.fail(f"{len(missing)} of {len(sent)} messages never came, e.g. {sorted(missing)[:5]}")
    group.stop()
    if not orderly:
        assert took_join < 15  # less than the interval of the periodic rebalance
        assert took_leave < 15


def test_a_member_that_dies_is_replaced_at_once(
    agents: dict[str, Agent], cluster: Cluster, make_topic: MakeTopic, load: Load, tmp_path: Path
) -> None:
    """The broker notifies the other members immediately when a connection closes without unregistering."""
    topic = make_topic(read=QUEUES, write=QUEUES)
    group = Group(cluster, topic)
    doomed = Agent("4.9.8", tmp_path / "doomed")
    group.join(agents["5.5.0"])
    victim = group.join(doomed)
    wait_until(group.is_balanced, "two members share", 60)
    load.run(topic)
    time.sleep(1.0)

    doomed.kill()
    del group.members[victim]

    took = wait_until(group.is_balanced, "the queues of the dead one are taken over")
    assert took < 15
    # The killed member did not commit: the survivor receives its messages, some of them again.
    before = set(load.sent)
    mark = fresh("mark")
    sent = set(load.finish())
    last = load.agent.call(
        "producer.send", name=load.producer, topic=topic, messages=[{"body": f"{mark}-{i}"} for i in range(QUEUES * 2)]
    )
    assert all(one["status"] == "SEND_OK" for one in last)
    after = (sent - before) | {f"{mark}-{i}" for i in range(QUEUES * 2)}
    wait_until(lambda: after <= {one["body"] for one in group.received()}, "everything sent after the death", 30)
    group.stop()
