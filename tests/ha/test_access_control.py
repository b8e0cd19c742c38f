"""Access control on replicated brokers: users and policies on every replica, forwarded requests, and failures of the master.

Every server is a process with authentication and authorization, the name server too.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from firearrow.admin.aio import Admin
from firearrow.aio import Producer, PullConsumer
from firearrow.client.message import Message
from firearrow.client.options import Credentials
from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.codes import ResponseCode
from firearrow.wire.signature import RequestSigner
from tests.broker.running import Client, bodies
from tests.ha.elected.groups import Group
from tests.ha.processes import NameServerProcess, Node, ServerProcess
from tests.support.waiting import run, until

ROOT = Credentials("root", "root-secret")
ALICE = Credentials("alice", "alice-secret")
WRONG = Credentials("alice", "another-secret")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}
SIGNER = RequestSigner(ROOT.access_key, ROOT.secret_key)
OK, DENIED = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION


@contextlib.asynccontextmanager
async def processes(*servers: ServerProcess) -> AsyncIterator[None]:
    """Start all servers at once, and kill them in the end."""
    try:
        await asyncio.gather(*(server.start() for server in servers))
        yield
    finally:
        for server in servers:
            server.signal(signal.SIGKILL)


@contextlib.asynccontextmanager
async def user_at(node: Node, user: Credentials | None) -> AsyncIterator[Client]:
    signer = None if user is None else RequestSigner(user.access_key, user.secret_key)
    channel = await Channel.connect(node.address, signer=signer)
    try:
        yield Client(channel)
    finally:
        await channel.close()


async def send(node: Node, user: Credentials | None, topic: str) -> int:
    """Return the response code of a send."""
    async with user_at(node, user) as client:
        return (await client.send(topic, b"hello")).code


async def pull(node: Node, user: Credentials | None, topic: str) -> int:
    """Return the response code of a pull from the beginning."""
    async with user_at(node, user) as client:
        return (await client.pull(topic, 0)).code


async def commit(node: Node, user: Credentials | None) -> int:
    """Return the response code of a committed offset, which followers forward."""
    async with user_at(node, user) as client:
        return (
            await client.call(
                Code.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "G", "topic": "Orders", "queueId": "0", "commitOffset": "1"}
            )
        ).code


async def create_alice(admin: Admin) -> None:
    """Create the topics, and a user who may use two of them."""
    for topic in ("Orders", "Invoices", "Secrets"):
        await admin.create_topic(topic, queues=1)
    await admin.create_group("G")
    await admin.create_user(ALICE.access_key, ALICE.secret_key)
    await admin.create_acl("alice", ["Topic:Orders", "Topic:Invoices"], ["Pub", "Sub", "Get"])
    await admin.create_acl("alice", ["Group:G"], ["Sub", "Get"])


async def same_users(admin: Admin, nodes: Sequence[Node]) -> None:
    """Wait until all brokers have the same users and policies."""

    async def equal() -> bool:
        users = [sorted(map(repr, await admin.users_on(node.address))) for node in nodes]
        acls = [sorted(map(repr, await admin.acls_on(node.address))) for node in nodes]
        return all(one == users[0] for one in users) and all(one == acls[0] for one in acls)

    await until(equal, "all brokers have the same users")


async def check_permissions(nodes: Sequence[Node]) -> None:
    """Check the rights of alice on each broker of an elected group."""
    for node in nodes:
        assert await send(node, ALICE, "Orders") == OK
        assert await commit(node, ALICE) == OK
        for user, topic in ((WRONG, "Orders"), (None, "Orders"), (ALICE, "Secrets")):
            assert await send(node, user, topic) == DENIED
            assert await pull(node, user, topic) == DENIED
        assert await commit(node, WRONG) == DENIED
        await until_pulled(node)


async def until_pulled(node: Node) -> None:
    """Wait until alice can read from a broker. A follower has a new topic and its messages a moment after the leader."""

    async def pulled() -> bool:
        code = await pull(node, ALICE, "Orders")
        assert code != DENIED
        return code == OK

    await until(pulled, f"{node.address} has messages")


@pytest.mark.slow
def test_users_and_policies_survive_the_leader_of_a_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        names = NameServerProcess(tmp_path / "namesrv", **SETTINGS)
        group = Group(tmp_path, names.address, 3, SIGNER, **SETTINGS)
        async with processes(names, *group.nodes), Admin(names.address, credentials=ROOT) as admin:
            await group.complete()
            await create_alice(admin)
            leader = await group.leader()
            followers = [node for node in group.nodes if node is not leader]
            await same_users(admin, group.nodes)
            await check_permissions([leader, *followers])
            assert await send(followers[0], ALICE, "Invoices") == OK

            async with Producer(names.address, group="P", credentials=ALICE) as producer:
                await producer.send(Message("Orders", b"from a client"))
                consumer = PullConsumer(names.address, group="G", topics=["Orders"], start_from="earliest", credentials=ALICE)
                async with consumer:
                    received: list[bytes] = []

                    async def consumed() -> bool:
                        received.extend(message.body for message in await consumer.poll(timeout=1))
                        return b"from a client" in received

                    await until(consumed, "the consumer receives the message")

                # No follower has copied these changes when the leader dies: they are in the log.
                await admin.create_user("carol", "carol-secret", broker=leader.address)
                await admin.create_acl("carol", ["Topic:Orders"], ["Pub"], broker=leader.address)
                await admin.delete_acl("alice", resource="Topic:Invoices", broker=leader.address)
                leader.signal(signal.SIGKILL)
                successor = await group.leader(besides=leader)
                remaining = [successor, *(node for node in followers if node is not successor)]
                await same_users(admin, remaining)
                await check_permissions(remaining)
                for node in remaining:
                    assert await send(node, ALICE, "Invoices") == DENIED
                    assert await send(node, Credentials("carol", "carol-secret"), "Orders") == OK
                await producer.send(Message("Orders", b"to the new leader"))

            await leader.start()
            await group.complete()
            await same_users(admin, group.nodes)
            await check_permissions([leader])
            assert await send(leader, ALICE, "Invoices") == DENIED

    run(scenario(), timeout_s=300)


@pytest.mark.slow
def test_users_reach_the_slave_and_are_checked_there_after_the_master_died(tmp_path: Path) -> None:
    async def scenario() -> None:
        names = NameServerProcess(tmp_path / "namesrv", **SETTINGS)
        master = Node(tmp_path / "m", names.address, SIGNER, brokerRole="SYNC_MASTER", brokerId="0", **SETTINGS)
        slave = Node(tmp_path / "s", names.address, SIGNER, brokerRole="SLAVE", brokerId="1", **SETTINGS)
        async with processes(names, master, slave), Admin(names.address, credentials=ROOT) as admin:

            async def in_sync() -> bool:
                _, _, body = await master.call(Code.GET_BROKER_HA_STATUS)
                return int(fastjson.loads(body)["inSyncSlaveNums"]) == 1

            await until(in_sync, "the slave follows")
            await create_alice(admin)
            async with user_at(master, ALICE) as client:
                assert (await client.send("Orders", b"kept")).code == OK
            await same_users(admin, [master, slave])
            await until_pulled(slave)
            master.signal(signal.SIGKILL)

            async with user_at(slave, ALICE) as client:
                assert bodies(await client.pull("Orders", 0)) == [b"kept"]
            for user, topic in ((None, "Orders"), (WRONG, "Orders"), (ALICE, "Secrets")):
                assert await pull(slave, user, topic) == DENIED
                assert await send(slave, user, topic) == DENIED
            consumer = PullConsumer(names.address, group="G", topics=["Orders"], start_from="earliest", credentials=ALICE)
            async with consumer:
                received: list[bytes] = []

                async def consumed() -> bool:
                    received.extend(message.body for message in await consumer.poll(timeout=1))
                    return b"kept" in received

                await until(consumed, "the consumer reads from the slave")

    run(scenario(), timeout_s=300)
