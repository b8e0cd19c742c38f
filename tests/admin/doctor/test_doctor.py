"""Findings of the doctor in clusters with problems."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from firearrow.admin.aio import Admin
from firearrow.admin.doctor.findings import ERROR, NOTE, WARNING, Report
from firearrow.client.message import ReceivedMessage
from firearrow.testing.clock import VirtualClock
from firearrow.testing.cluster import AsyncCluster
from firearrow.wire.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from tests.admin.kit import consuming, running, send
from tests.admin.test_dead_letters import fail_everything


def found(report: Report, severity: str, text: str) -> str:
    """Return the fix of the finding with this text."""
    (fix,) = [one.fix for one in report.findings if one.severity == severity and text in one.cause]
    return fix


def test_healthy_cluster_has_no_problems() -> None:
    async def story() -> None:
        async with running(brokers=2, name_servers=2) as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await send(cluster, "T", b"1")
            async with consuming(cluster, "g", "T", 1):
                await cluster.settle()
                await admin.reset_offset("g", "T", "latest")
                report = await admin.examine()
            assert [one for one in report.findings if one.severity != NOTE] == []
            assert report.worst() in (None, NOTE)
            assert report.checked["name servers"] == 2
            assert (report.checked["brokers"], report.checked["groups"]) == (2, 1)

    asyncio.run(story())


def test_name_server_that_does_not_answer_is_an_error() -> None:
    async def story() -> None:
        async with AsyncCluster(brokers=1, name_servers=2) as cluster, Admin(cluster.name_server) as admin:
            await cluster.stop_name_server(1)
            report = await admin.examine()
            assert "firearrow namesrv" in found(report, ERROR, "the name server does not answer")
            assert report.worst() == ERROR
            await cluster.stop_name_server(0)
            report = await admin.examine()
            assert len(report.findings) == 2

    asyncio.run(story())


def test_broker_that_does_not_answer_is_an_error() -> None:
    async def story() -> None:
        async with AsyncCluster(brokers=2) as cluster, Admin(cluster.name_server, connect_timeout=0.3) as admin:
            address = (await admin.list_brokers(broker="broker-b"))[0].address
            cluster.faults.refuse("broker-b")
            report = await admin.examine()
            (gone,) = [
                one
                for one in report.findings
                if one.severity == ERROR and f"no broker answers at its address {address}" in one.cause
            ]
            assert "brokerIP1" in gone.fix
            assert report.checked["brokers"] == 1

    asyncio.run(story())


def test_uneven_queues_unconsumed_topics_and_dead_letters_are_reported() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", read_queues=1, write_queues=3)
            await admin.create_topic("Lonely", queues=1)
            await send(cluster, "Lonely", b"1", b"2")
            report = await admin.examine()
            assert (
                found(report, ERROR, "3 write queues but 1 read queues")
                == "firearrow topic alter T --read-queues 3 --broker broker-a"
            )
            assert "firearrow topic delete Lonely" in found(report, NOTE, "2 messages and no group")

            await admin.alter_topic("T", read_queues=3)
            await send(cluster, "T", b"1", b"2", b"3")
            await fail_everything(cluster, "g", 3)
            await send(cluster, "T", b"4")
            report = await admin.examine()
            assert "firearrow dlq resend g --all" in found(report, WARNING, "3 dead letters")
            assert "firearrow offset skip g" in found(report, WARNING, "no member is connected")

    asyncio.run(story())


def test_missing_route_and_write_permission_are_reported() -> None:
    async def story() -> None:
        async with running() as (_, admin):
            await admin.create_topic("T")
            await admin.wipe_write_permission("broker-a")
            await admin.client.check(admin.options.name_servers[0], DeleteTopicFromNamesrvRequestHeader(topic="T"))
            report = await admin.examine()
            assert found(report, WARNING, "write permission was removed") == "firearrow broker allow broker-a"
            assert [one.subject for one in report.findings if "clients cannot find it" in one.cause] == ["T"]
            assert not any("check failed" in one.cause for one in report.findings)
            assert "groups" in report.checked

    asyncio.run(story())


def test_expiring_messages_and_wrong_clock_are_reported() -> None:
    async def story() -> None:
        clock = VirtualClock(datetime.now(UTC) - timedelta(hours=10))
        async with running(clock=clock, properties={"fileReservedTime": "12"}) as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await send(cluster, "T", b"1", b"2")
            async with consuming(cluster, "g", "T", 2):
                await cluster.settle()
            await send(cluster, "T", b"3")
            report = await admin.examine()
            assert "fileReservedTime=24" in found(report, WARNING, "10 hours behind in T, and messages are kept for 12 hours")
            assert "timedatectl" in found(report, WARNING, "s behind this machine's")

    asyncio.run(story())


def test_different_subscriptions_are_reported() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=2)

            async def take(message: ReceivedMessage) -> None:
                pass

            one = cluster.push_consumer(group="g", subscribe={"T": "a"}, listener=take)
            other = cluster.push_consumer(group="g", subscribe={"T": "b"}, listener=take)
            async with one, other:
                report = await admin.examine()
            (finding,) = [one for one in report.findings if "have different subscriptions" in one.cause]
            assert "T [a]" in finding.cause
            assert "T [b]" in finding.cause
            assert "the same subscriptions" in finding.fix

    asyncio.run(story())
