"""Clusters with slaves: reads from slaves, synchronous replication, a moved clock."""

from __future__ import annotations

from typing import Any

import pytest

import firearrow as fa
from firearrow.testing import AsyncCluster, Cluster
from tests.support.waiting import run
from tests.testing.kit import bodies

SYNC = {"brokerRole": "SYNC_MASTER"}


def test_slave_is_read_when_its_master_is_down() -> None:
    with Cluster(slaves=1) as cluster:
        with cluster.producer() as producer:
            producer.send(fa.Message("Orders", b"A1"))
            producer.send(fa.Message("Orders", b"A2"))
        assert cluster.settle()
        cluster.brokers[0].kill(power_cut=True)
        assert bodies(cluster.messages("Orders")) == [b"A1", b"A2"]
        seen: list[bytes] = []
        with cluster.push_consumer(
            group="billing", subscribe={"Orders": "*"}, listener=lambda message: seen.append(message.body), start_from="earliest"
        ):
            assert cluster.settle()
        assert sorted(seen) == [b"A1", b"A2"]


def test_acknowledged_message_of_a_sync_master_is_on_its_slave() -> None:
    with Cluster(slaves=1, properties=SYNC) as cluster, cluster.producer(retries=0) as producer:
        assert producer.send(fa.Message("Orders", b"A1")).status == fa.SendStatus.OK
        cluster.brokers[0].kill(power_cut=True)
        cluster.settle()
        assert bodies(cluster.messages("Orders")) == [b"A1"]
        cluster.brokers[0].start()
        cluster.slaves[0].kill()
        assert producer.send(fa.Message("Orders", b"A2")).status == fa.SendStatus.SLAVE_NOT_AVAILABLE


def test_slave_follows_after_hours() -> None:
    async def scenario() -> None:
        async with AsyncCluster(brokers=2, slaves=2) as cluster:
            assert [node.name for node in cluster.slaves] == [
                "broker-a-slave-1",
                "broker-a-slave-2",
                "broker-b-slave-1",
                "broker-b-slave-2",
            ]
            async with cluster.producer() as producer:
                for number in range(8):
                    await producer.send(fa.Message("Orders", b"%d" % number), delay_level=18)
            before = [node.replication for node in cluster.slaves]
            await cluster.advance(hours=2)
            assert len(await cluster.messages("Orders")) == 8
            for node, replication in zip(cluster.slaves, before, strict=True):
                assert replication is not None
                assert replication.master_alive
                assert len(node.records("Orders")) == 4
            for node in cluster.brokers:
                await node.kill()
            assert len(await cluster.messages("Orders")) == 8

    run(scenario())


def test_settled_slave_has_the_offsets() -> None:
    with Cluster(slaves=1) as cluster:
        with cluster.producer() as producer:
            producer.send(fa.Message("Orders", b"A1"))
            seen: list[bytes] = []
            consumer: dict[str, Any] = {
                "group": "billing",
                "subscribe": {"Orders": "*"},
                "listener": lambda message: seen.append(message.body),
            }
            with cluster.push_consumer(start_from="earliest", **consumer):
                assert cluster.settle()
            producer.send(fa.Message("Orders", b"A2"))
            assert cluster.settle()
        cluster.brokers[0].kill()
        with cluster.push_consumer(**consumer):
            assert cluster.settle()
        assert seen == [b"A1", b"A2"]


def test_invalid_number_of_slaves_is_rejected() -> None:
    with pytest.raises(ValueError, match="10 slaves of each broker: expected 0 to 9"):
        Cluster(slaves=10)
