"""Several name servers, one of which stops; ours and Apache's together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import rawcall, servers
from tests.conformance.agent import Agent, AgentError
from tests.conformance.conftest import fresh
from tests.conformance.servers import APART, TARGET, Process
from tests.support.waiting import wait_until

Started = list[Process]


@pytest.fixture
def started() -> Iterator[Started]:
    """Processes of the test; those still running at its end are killed."""
    processes: Started = []
    yield processes
    for process in processes:
        process.kill()


def round_trip(java: Agent, namesrv: str, topic: str, producer: str | None = None) -> None:
    """Send and consume a few messages, with new clients unless a producer is given."""
    name = producer or fresh("producer")
    if producer is None:
        java.call("producer.start", name=name, namesrv=namesrv)
    bodies = [f"{topic}-{i}" for i in range(12)]
    for body in bodies:
        patiently(partial(send, java, name, topic, body))
    wait_until(lambda: any(rawcall.has_route(address, topic) for address in namesrv.split(";")), "the route")
    consumer = fresh("push")
    patiently(lambda: java.call("push.start", name=consumer, group=consumer, namesrv=namesrv, topics={topic: "*"}))
    assert sorted(one["body"] for one in java.consumed(consumer, 12)) == sorted(bodies)
    java.submit("push.stop", name=consumer)


def send(java: Agent, producer: str, topic: str, body: str) -> None:
    result = java.call("producer.send", name=producer, topic=topic, messages=[{"body": body}])[0]
    if result.get("status") != "SEND_OK":
        raise AgentError(result)


def patiently(action: Callable[[], Any]) -> None:
    """The 5.x client reports a call to a dead name server as a failure and uses the next one for the next call."""
    for _ in range(20):
        try:
            action()
        except AgentError as error:
            if "RemotingConnectException" not in str(error):
                raise
            time.sleep(0.1)
        else:
            return
    action()


def test_clients_go_on_when_a_name_server_goes_away(java: Agent, tmp_path: Path, started: Started) -> None:
    start_namesrv, start_broker = APART[TARGET]
    addresses = []
    for i in range(2):
        process, address = start_namesrv(tmp_path / f"namesrv-{i}")
        started.append(process)
        addresses.append(address)
    both = ";".join(addresses)
    broker, _ = start_broker(tmp_path / "broker", both, {})
    started.append(broker)
    producer = fresh("producer")
    java.call("producer.start", name=producer, namesrv=both)
    round_trip(java, both, fresh("Both"), producer)

    started[0].kill()

    # Both the old producer, which may have used the stopped one, and new clients continue.
    round_trip(java, both, fresh("Alone"), producer)
    round_trip(java, both, fresh("Alone"))
    java.submit("producer.stop", name=producer)


@pytest.mark.skipif(TARGET == "apache", reason="both sides are chosen by the test")
# Maven Central has no 4.9.8 broker; 4.9.7 registers in the same way.
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_an_apache_broker_registers_at_our_name_server(
    agents: dict[str, Agent], mqadmin: Callable[..., str], tmp_path: Path, started: Started, version: str
) -> None:
    namesrv_process, namesrv = servers.start_firearrow_namesrv(tmp_path / "namesrv")
    started.append(namesrv_process)
    broker, address = servers.start_apache_broker(tmp_path / "broker", namesrv, {}, version=version)
    started.append(broker)

    for java in agents.values():
        round_trip(java, namesrv, fresh("Mixed"))
    listed = mqadmin("clusterList", "-n", namesrv)
    assert address in listed

    # When its connection breaks, the name server removes it immediately.
    broker.kill()
    wait_until(lambda: not rawcall.has_route(namesrv, "TBW102"), "the dead broker is forgotten")


@pytest.mark.skipif(TARGET == "apache", reason="both sides are chosen by the test")
def test_our_broker_registers_at_an_apache_name_server(
    agents: dict[str, Agent], mqadmin: Callable[..., str], tmp_path: Path, started: Started
) -> None:
    namesrv_process, namesrv = servers.start_apache_namesrv(tmp_path / "namesrv")
    started.append(namesrv_process)
    broker, address = servers.start_firearrow_broker(tmp_path / "broker", namesrv, {})
    started.append(broker)

    for java in agents.values():
        round_trip(java, namesrv, fresh("Mixed"))
    assert address in mqadmin("clusterList", "-n", namesrv)
    topic = fresh("Made")
    assert "success" in mqadmin("updateTopic", "-n", namesrv, "-b", address, "-t", topic, "-r", "3", "-w", "3")
    wait_until(lambda: route_or_none(namesrv, topic) == (3, 3), "the route")

    assert broker.stop() == 0
    wait_until(lambda: not rawcall.has_route(namesrv, "TBW102"), "our broker says goodbye")


def route_or_none(namesrv: str, topic: str) -> tuple[int, int] | None:
    try:
        queues: list[dict[str, Any]] = rawcall.route(namesrv, topic)["queueDatas"]
    except LookupError:
        return None
    return queues[0]["readQueueNums"], queues[0]["writeQueueNums"]
