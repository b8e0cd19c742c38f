"""What the doctor finds in clusters that are broken on purpose."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from firearrow.admin.aio import Admin
from firearrow.admin.cluster import BrokerAddress
from firearrow.admin.doctor import _bytes, _clock_ms, _disk, local_process
from firearrow.admin.doctor.findings import ERROR, NOTE, WARNING, Report
from firearrow.client.message import ReceivedMessage
from firearrow.testing.clock import VirtualClock
from firearrow.testing.cluster import AsyncCluster
from firearrow.wire.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from tests.admin.kit import consuming, running, send
from tests.admin.test_dead_letters import fail_everything

BROKER = BrokerAddress("c", "broker-a", 0, "127.0.0.1:10911")


def found(report: Report, severity: str, text: str) -> str:
    """What mends it."""
    (fix,) = [one.fix for one in report.findings if one.severity == severity and text in one.cause]
    return fix


def test_a_healthy_cluster() -> None:
    async def story() -> None:
        async with running(brokers=2, name_servers=2) as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await send(cluster, "T", b"1")
            async with consuming(cluster, "g", "T", 1):
                await cluster.settle()
                await admin.reset_offset("g", "T", "end")
                report = await admin.examine()
            assert [one for one in report.findings if one.severity != NOTE] == []
            assert report.worst() in (None, NOTE)
            assert report.checked["name servers"] == 2
            assert (report.checked["brokers"], report.checked["groups"]) == (2, 1)

    asyncio.run(story())


def test_servers_that_are_not_there() -> None:
    async def story() -> None:
        async with AsyncCluster(brokers=1, name_servers=2) as cluster, Admin(cluster.name_server) as admin:
            await cluster.stop_name_server(1)
            report = await admin.examine()
            assert "firearrow namesrv" in found(report, ERROR, "it does not answer")
            assert report.worst() == ERROR
            await cluster.stop_name_server(0)
            report = await admin.examine()
            assert len(report.findings) == 2

    asyncio.run(story())


def test_a_broker_that_answers_no_more() -> None:
    async def story() -> None:
        async with AsyncCluster(brokers=2) as cluster, Admin(cluster.name_server, connect_timeout=0.3) as admin:
            address = (await admin.list_brokers(broker="broker-b"))[0].address
            cluster.faults.refuse("broker-b")
            report = await admin.examine()
            (gone,) = [one for one in report.findings if one.severity == ERROR and f"clients are told {address}" in one.cause]
            assert "brokerIP1" in gone.fix
            assert report.checked["brokers"] == 1

    asyncio.run(story())


def test_topics_and_groups_that_go_wrong() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", read_queues=1, write_queues=3)
            await admin.create_topic("Lonely", queues=1)
            await send(cluster, "Lonely", b"1", b"2")
            report = await admin.examine()
            assert (
                found(report, ERROR, "3 write queues and 1 read queues")
                == "firearrow topic alter T --read-queues 3 --broker broker-a"
            )
            assert "firearrow topic delete Lonely" in found(report, NOTE, "2 messages, and no group")

            await admin.alter_topic("T", read_queues=3)
            await send(cluster, "T", b"1", b"2", b"3")
            await fail_everything(cluster, "g", 3)
            await send(cluster, "T", b"4")
            report = await admin.examine()
            assert "firearrow dlq resend g --all" in found(report, WARNING, "3 messages could not be consumed")
            assert "firearrow offset reset g" in found(report, WARNING, "none of its members is connected")

    asyncio.run(story())


def test_routes_that_lead_nowhere() -> None:
    async def story() -> None:
        async with running() as (_, admin):
            await admin.create_topic("T")
            await admin.wipe_write_permission("broker-a")
            await admin.client.check(admin.options.name_servers[0], DeleteTopicFromNamesrvRequestHeader(topic="T"))
            report = await admin.examine()
            assert found(report, WARNING, "permission to write was taken") == "firearrow broker allow broker-a"
            assert [one.subject for one in report.findings if "clients cannot find it" in one.cause] == ["T"]
            assert not any("cannot be examined" in one.cause for one in report.findings)
            assert "groups" in report.checked

    asyncio.run(story())


def test_messages_that_will_expire_and_a_clock_that_is_wrong() -> None:
    async def story() -> None:
        clock = VirtualClock(datetime.now(UTC) - timedelta(hours=10))
        async with running(clock=clock, properties={"fileReservedTime": "12"}) as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await send(cluster, "T", b"1", b"2")
            async with consuming(cluster, "g", "T", 2):
                await cluster.settle()
            await send(cluster, "T", b"3")
            report = await admin.examine()
            assert "fileReservedTime=24" in found(report, WARNING, "10 hours behind in T, and messages are kept 12 hours")
            assert "timedatectl" in found(report, WARNING, "s behind this machine's")

    asyncio.run(story())


def test_members_that_want_different_things() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=2)

            async def take(message: ReceivedMessage) -> None:
                pass

            one = cluster.push_consumer(group="g", subscribe={"T": "a"}, listener=take)
            other = cluster.push_consumer(group="g", subscribe={"T": "b"}, listener=take)
            async with one, other:
                report = await admin.examine()
            (finding,) = [one for one in report.findings if "subscribe to different things" in one.cause]
            assert "T [a]" in finding.cause
            assert "T [b]" in finding.cause
            assert "the same subscriptions" in finding.fix

    asyncio.run(story())


@pytest.mark.parametrize(
    ("ratio", "severity", "text"),
    [
        ("0.95", ERROR, "refuses messages"),
        ("0.86", ERROR, "deletes the oldest"),
        ("0.80", WARNING, "at any hour"),
        ("0.5", None, ""),
    ],
)
def test_disks(ratio: str, severity: str | None, text: str) -> None:
    report = Report()
    _disk(report, BROKER, {"commitLogDiskRatio": ratio}, {"fileReservedTime": "48"})
    if severity is None:
        assert report.findings == []
    else:
        assert "fileReservedTime=HOURS (it is 48)" in found(report, severity, text)


def test_figures_of_brokers_are_read() -> None:
    assert _bytes("0 B") == 0
    assert _bytes("1.5 MiB") == 3 << 19
    assert _bytes("") == 0
    status = {"bootTimestamp": "1000000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}
    assert _clock_ms(status) == 1_000_000 + ((26 * 60 + 3) * 60 + 4) * 1000
    assert _clock_ms({}) is None


def test_a_process_of_this_machine_is_found() -> None:
    async def story() -> None:
        async with AsyncCluster(sockets=True, clock=None) as cluster, Admin(cluster.name_server) as admin:
            host, _, port = (await admin.list_brokers())[0].address.rpartition(":")
            ours = local_process.listening(host, int(port))
            assert ours is not None
            assert Path(f"/proc/{ours.pid}").samefile("/proc/self")
            assert ours.open_files > 3
            assert ours.resident > 1 << 20
            assert local_process.listening("192.0.2.1", int(port)) is None
            assert local_process.listening(host, 1) is None

    asyncio.run(story())
