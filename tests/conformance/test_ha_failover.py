"""The unmodified Java client with a master and a slave: consumers read from the slave while the master is down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import builds, servers
from tests.conformance.agent import Agent
from tests.conformance.conftest import fresh
from tests.conformance.servers import TARGET, Process
from tests.conformance.test_ha_mixed import SETTINGS, TOPIC, end_of_log, send, topic_is_known
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(TARGET == "apache", reason="our brokers are under test")

ROUTE_REFRESH_S = 30  # of the Java client, by default


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(builds.SERVER_VERSION, tmp_path / "agent")
    yield agent
    agent.close()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    for process in running:
        process.kill()


def test_a_java_consumer_goes_on_at_the_slave_and_sees_nothing_missing(
    tmp_path: Path, java: Agent, processes: list[Process]
) -> None:
    namesrv_process, namesrv = servers.start_firearrow_namesrv(tmp_path)
    first, master = servers.start_firearrow_broker(tmp_path / "m", namesrv, SETTINGS)
    second, slave = servers.start_firearrow_broker(
        tmp_path / "s", namesrv, {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1", "slaveSyncInterval": "500"}
    )
    processes += [first, second, namesrv_process]
    send(master, range(100))
    wait_until(lambda: topic_is_known(slave), "the slave knows the topic")
    early = fresh("early")
    java.call("push.start", name=early, namesrv=namesrv, group=early, topics={TOPIC: "*"})
    assert len(java.consumed(early, 100)) == 100
    send(master, range(100, 200))
    wait_until(lambda: end_of_log(slave) == end_of_log(master), "the slave has the log")
    first.kill()
    killed = time.monotonic()
    late = fresh("late")  # it starts while the master is down
    java.call("push.start", name=late, namesrv=namesrv, group=late, topics={TOPIC: "*"})
    assert {one["keys"] for one in java.consumed(late, 200)} == {f"k{number}" for number in range(200)}
    keys = {one["keys"] for one in java.consumed(early, 200, (ROUTE_REFRESH_S + 15) * 1000)}
    assert keys == {f"k{number}" for number in range(200)}
    assert time.monotonic() - killed < ROUTE_REFRESH_S + 15
    again, master = servers.start_firearrow_broker(tmp_path / "m", namesrv, SETTINGS, int(master.rpartition(":")[2]))
    processes.insert(0, again)
    send(master, range(200, 300))
    for consumer in (early, late):
        messages = java.consumed(consumer, 300, (ROUTE_REFRESH_S + 15) * 1000)
        assert {one["keys"] for one in messages} == {f"k{number}" for number in range(300)}
        java.submit("push.stop", name=consumer)
