"""A master and a slave with access control, and the Python client."""

from __future__ import annotations

import asyncio

import pytest

import firearrow as fa
from firearrow.auth.policies import AccessControlList
from firearrow.auth.users import StoredUser
from firearrow.config.secret import Secret
from firearrow.testing.cluster import AsyncCluster
from firearrow.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"12345678"}',
}


def test_clients_and_replication_with_credentials() -> None:
    async def scenario() -> None:
        async with AsyncCluster(slaves=1, properties=PROPERTIES) as cluster:
            master, slave = cluster.brokers[0].broker, cluster.slaves[0].broker
            assert master is not None
            assert slave is not None
            table, copied = master.context.auth, slave.context.auth
            assert table is not None
            assert copied is not None
            table.put_user(StoredUser("alice", Secret("12345678")))
            entries = [
                PolicyEntryInfo("Topic:T", ["Pub", "Sub", "Get"], None, "Allow"),
                PolicyEntryInfo("Group:G", ["Sub"], None, "Allow"),
            ]
            table.put_acl("alice", AccessControlList.from_info("User:alice", AclInfo("User:alice", [PolicyInfo(None, entries)])))
            credentials = fa.Credentials("alice", "12345678")
            async with cluster.producer(credentials=credentials) as producer:
                await producer.send(fa.Message("T", b"hello"))
                with pytest.raises(fa.BrokerError, match="no permission to access Topic:U"):
                    await producer.send(fa.Message("U", b"x"))
            async with cluster.producer(credentials=fa.Credentials("alice", "wrong")) as producer:
                with pytest.raises(fa.BrokerError, match="check signature failed"):
                    await producer.send(fa.Message("T", b"x"))
            async with cluster.producer() as producer:
                with pytest.raises(fa.BrokerError, match="username cannot be null"):
                    await producer.send(fa.Message("T", b"x"))
            received: list[bytes] = []
            consumer = cluster.push_consumer(
                group="G",
                subscribe="T",
                listener=lambda message: received.append(message.body),
                credentials=credentials,
                start_from="earliest",
            )
            async with consumer:
                await cluster.settle()
            assert received == [b"hello"]
            assert copied.to_json() == table.to_json()
            assert slave.context.topics.find("T") is not None

    asyncio.run(scenario())
