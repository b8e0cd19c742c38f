from __future__ import annotations

import asyncio

import pytest

from firearrow.client.errors import BrokerError
from tests.admin.kit import running, send


def test_broker_is_listed_inspected_and_configured() -> None:
    async def story() -> None:
        async with running(brokers=2) as (cluster, admin):
            brokers = await admin.list_brokers()
            assert [(one.name, one.broker_id, one.is_master) for one in brokers] == [("broker-a", 0, True), ("broker-b", 0, True)]
            address = brokers[0].address
            await admin.create_topic("T", queues=1)
            await send(cluster, "T", b"1", b"2")
            totals = [int((await admin.broker_status(one.address))["putMessageTimesTotal"]) for one in brokers]
            assert sum(totals) >= 2
            await admin.set_broker_config(address, {"fileReservedTime": "48"})
            assert (await admin.broker_config(address))["fileReservedTime"] == "48"
            for key in ("storePathRootDir", "listenPort", "brokerName"):
                with pytest.raises(BrokerError, match=key):
                    await admin.set_broker_config(address, {key: "1"})
            assert await admin.broker_statistics(address, "NO_SUCH", "x") is None
            await admin.clean_expired_queues(address)
            await admin.clean_unused_topics(address)
            await admin.delete_expired_log(address)
            assert (await admin.replication_status(address)).master

    asyncio.run(story())
