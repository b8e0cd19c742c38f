"""Brokers and name servers: settings, statistics, permissions; traces; and the face that waits."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from firearrow.admin import aio, sync
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.trace import TraceEvent
from firearrow.client.errors import BrokerError, ClosedError
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.producer.transaction import LocalTransactionState
from firearrow.testing.sync import Cluster
from tests.admin.kit import running, send


def test_brokers_are_listed_asked_and_changed() -> None:
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


def test_name_servers_are_changed_together() -> None:
    async def story() -> None:
        async with running(name_servers=2) as (_, admin):
            configs = await admin.name_server_config()
            assert len(configs) == 2
            await admin.kv_put("n", "k", "wert-ü")
            for address in admin.options.name_servers:
                async with aio.Admin(address) as one:
                    assert await one.kv_get("n", "k") == "wert-ü"
            assert await admin.kv_list("n") == {"k": "wert-ü"}
            await admin.kv_delete("n", "k")
            assert await admin.kv_get("n", "k") is None
            assert await admin.kv_list("nothing") == {}
            await admin.create_topic("T")
            wiped = await admin.wipe_write_permission("broker-a")
            assert all(count > 0 for count in wiped.values())
            assert len(wiped) == 2
            assert [one.perm for one in (await admin.topic_route("T")).queue_counts] == [4]
            await admin.add_write_permission("broker-a")
            assert [one.perm for one in (await admin.topic_route("T")).queue_counts] == [6]

    asyncio.run(story())


def test_the_queues_of_an_ordered_topic_are_fixed_and_freed() -> None:
    async def story() -> None:
        async with running() as (_, admin):
            await admin.create_topic("T")
            assert await admin.order_config("T") is None
            await admin.set_order_config("T", {"broker-a": 4, "broker:b": 2})
            assert await admin.kv_list("ORDER_TOPIC_CONFIG") == {"T": "broker-a:4;broker:b:2"}
            assert await admin.order_config("T") == {"broker-a": 4, "broker:b": 2}
            for wrong in ({}, {"broker-a": 0}):
                with pytest.raises(AdminError, match="expected brokers"):
                    await admin.set_order_config("T", wrong)
            await admin.kv_put("ORDER_TOPIC_CONFIG", "U", "broker-a")
            with pytest.raises(AdminError, match="'broker-a' is no part of an order configuration"):
                await admin.order_config("U")
            await admin.delete_order_config("T")
            assert await admin.order_config("T") is None

    asyncio.run(story())


def test_a_transaction_that_was_given_up_is_asked_about_again() -> None:
    async def story() -> None:
        asked: list[str] = []

        def decide(message: ReceivedMessage) -> LocalTransactionState:
            asked.append(message.msg_id)
            return LocalTransactionState.UNKNOWN if len(asked) < 3 else LocalTransactionState.COMMIT

        properties = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000", "transactionCheckMax": "1"}
        async with running(properties=properties) as (cluster, admin):
            await admin.create_topic("T", queues=1)
            assert await admin.given_up_transactions() == []
            producer = cluster.transaction_producer(group="p", check=decide, execute=lambda *_: LocalTransactionState.UNKNOWN)
            async with producer:
                sent = await producer.send_in_transaction(Message("T", b"x"))
                with pytest.raises(NotFoundError):
                    await admin.resume_check(sent.msg_id)
                await cluster.advance(seconds=20)
                (half,) = await admin.given_up_transactions()
                assert (half.msg_id, half.body) == (sent.msg_id, b"x")
                before = len(asked)
                assert await admin.resume_check(sent.msg_id) == half.offset_msg_id
                await cluster.advance(seconds=5)
                assert len(asked) > before

    asyncio.run(story())


def test_the_life_of_a_message() -> None:
    async def story() -> list[TraceEvent]:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            taken = asyncio.Event()

            async def take(message: ReceivedMessage) -> None:
                taken.set()

            async with cluster.push_consumer(group="g", subscribe={"T": "*"}, listener=take, trace=True, start_from="earliest"):
                async with cluster.producer(group="p", trace=True) as producer:
                    msg_id = (await producer.send(Message("T", b"x", tags="t", keys="k"))).msg_id
                await asyncio.wait_for(taken.wait(), 20)
            await cluster.settle()
            events = await admin.message_trace(msg_id)
            assert {one.msg_id for one in events} == {msg_id}
            assert [one.kind for one in await admin.message_trace("k")] == [one.kind for one in events]
            return events

    events = asyncio.run(story())
    assert sorted(one.kind for one in events) == ["Pub", "Stored", "SubAfter", "SubBefore"]
    stored = next(one for one in events if one.kind == "Stored")
    assert (stored.topic, stored.tags, stored.keys) == ("T", "t", "k")
    sent = next(one for one in events if one.kind == "Pub")
    assert (sent.group, sent.topic, sent.tags, sent.keys, sent.success) == ("p", "T", "t", "k", True)
    after = next(one for one in events if one.kind == "SubAfter")
    assert (after.group, after.success, after.outcome) == ("g", True, "SUCCESS")


def test_the_face_that_waits_has_every_function() -> None:
    coroutines = {name for name, value in vars(aio.Admin).items() if isinstance(value, aio.AdminMethod)}
    assert coroutines
    assert {name for name in coroutines if not hasattr(sync.Admin, name)} == set()
    for name in coroutines:
        function = vars(aio.Admin)[name].__wrapped__
        assert function.__name__ == name
        assert inspect.iscoroutinefunction(function)


def test_the_face_that_waits() -> None:
    with Cluster() as cluster:
        admin = sync.Admin(cluster.name_server)
        with admin:
            assert admin.create_topic("T", queues=2) == ["broker-a"]
            assert [one.queue_id for one in admin.topic_status("T")] == [0, 1]
        with pytest.raises(ClosedError):
            admin.topic_names()
