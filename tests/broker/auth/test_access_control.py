"""A running broker with authentication and authorization: what signed, unsigned and forbidden requests get."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.server import Broker
from firearrow.config.secret import Secret
from firearrow.net.channel import Channel
from firearrow.wire.codes import RequestCode as Code
from firearrow.wire.frame import Command, FrameDecoder, encode_request
from firearrow.wire.names import TRANS_HALF_TOPIC
from firearrow.wire.signature import RequestSigner
from tests.broker.running import COMMIT, SUSPEND, WITH_EXPRESSION, Client, bodies, broker, records, send_header

ROOT = '{"username":"root","password":"12345678"}'
NO_PERMISSION = 16


def guarded(directory: Path, **settings: Any) -> contextlib.AbstractAsyncContextManager[Broker]:
    defaults: dict[str, Any] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": Secret(ROOT),
    }
    return broker(directory, **defaults | settings)


@contextlib.asynccontextmanager
async def signed_client(running: Broker, user: str, password: str = "12345678", *, port: int = 0) -> AsyncIterator[Client]:
    address = f"127.0.0.1:{port}" if port else running.advertised
    channel = await Channel.connect(address, signer=RequestSigner(user, password) if user else None)
    try:
        yield Client(channel)
    finally:
        await channel.close()


async def create_user(root: Client, name: str, *permissions: str) -> None:
    body = json.dumps({"password": "12345678"}).encode()
    answer = await root.call(Code.AUTH_CREATE_USER, {"username": name}, body)
    assert answer.code == 0, answer.remark
    if permissions:
        await allow(root, name, *permissions)


async def allow(root: Client, name: str, *permissions: str) -> None:
    entries = [
        {"resource": resource, "actions": actions.split(","), "decision": "Allow"}
        for resource, actions in (permission.split(" ") for permission in permissions)
    ]
    body = json.dumps({"subject": f"User:{name}", "policies": [{"entries": entries}]}).encode()
    answer = await root.call(Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)
    assert answer.code == 0, answer.remark


Scenario = Callable[[Path], Coroutine[Any, Any, None]]


def scenario(function: Scenario) -> Callable[[Path], None]:
    @wraps(function)
    def run(tmp_path: Path) -> None:
        asyncio.run(function(tmp_path))

    return run


@scenario
async def test_every_port_and_every_code_is_guarded(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running:
        for port in (running.listen_port, running.listen_port - 2):
            async with signed_client(running, "", port=port) as peer:
                for code in Code:
                    answer = await peer.call(code)
                    assert (answer.code, answer.remark) == (NO_PERMISSION, "username cannot be null."), code
                sent = await peer.send("T", b"x")
                assert (sent.code, sent.remark) == (NO_PERMISSION, "username cannot be null.")


@scenario
async def test_refused_one_way_requests_are_dropped(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "") as peer, signed_client(running, "root") as root:
        peer.channel.oneway(Code.SEND_MESSAGE_V2, send_header("T", 0, ""), b"x")
        assert (await peer.call(Code.GET_BROKER_RUNTIME_INFO)).code == NO_PERMISSION
        assert peer.channel.in_flight == 0
        assert (await root.call(Code.GET_TOPIC_CONFIG, {"topic": "T"})).code == 17


@scenario
async def test_producer_and_consumer_with_the_documented_permissions(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "producer", "Topic:T Pub")
        await create_user(root, "consumer", "Topic:T Sub,Get", "Group:G Sub")
        async with signed_client(running, "producer") as producer, signed_client(running, "consumer") as consumer:
            assert (await producer.send("T", b"one")).code == 0
            assert (await producer.send("T", b"two", code=Code.SEND_MESSAGE_V2)).code == 0
            refused = await producer.send("U", b"x")
            remark = "User:producer has no permission to access Topic:U from 127.0.0.1, no matched policies."
            assert (refused.code, refused.remark) == (NO_PERMISSION, remark)
            assert (await producer.pull("T", 0)).code == NO_PERMISSION
            assert bodies(await consumer.pull("T", 0)) == [b"one", b"two"]
            assert (await consumer.pull("T", 0, consumerGroup="other")).code == NO_PERMISSION
            assert (await consumer.pull("%RETRY%other", 0)).code == NO_PERMISSION
            assert (await consumer.send("T", b"x")).code == NO_PERMISSION
            assert (await consumer.call(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})).ext["offset"] == "2"
            heartbeat = {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}]}]}
            assert (await consumer.call(Code.HEART_BEAT, {}, json.dumps(heartbeat).encode())).code == 0


@scenario
async def test_parked_pull_of_an_authorized_consumer_is_answered(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root, signed_client(running, "root") as other:
        await root.send("T", b"one")
        parked = asyncio.ensure_future(other.pull("T", 1, flags=COMMIT | SUSPEND | WITH_EXPRESSION, hold_ms=30_000))
        await asyncio.sleep(0)
        await other.call(Code.GET_BROKER_RUNTIME_INFO)  # on the same connection: the pull was served before
        await root.send("T", b"two")
        assert bodies(await parked) == [b"two"]


@scenario
async def test_wrong_password_disabled_and_deleted_users(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "alice", "Topic:T Pub")
        async with signed_client(running, "alice") as alice, signed_client(running, "alice", "wrong") as mallory:
            assert (await alice.send("T", b"x")).code == 0
            assert (await mallory.send("T", b"x")).remark == "check signature failed."
            await root.call(Code.AUTH_UPDATE_USER, {"username": "alice"}, b'{"userStatus":"disable"}')
            assert (await alice.send("T", b"x")).remark == "User:alice is disabled."
            await root.call(Code.AUTH_DELETE_USER, {"username": "alice"})
            assert (await alice.send("T", b"x")).remark == "User:alice is not found."


@scenario
async def test_users_survive_a_restart(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "alice", "Topic:T Pub")
    assert (tmp_path / "config" / "auth.json").stat().st_mode & 0o777 == 0o600
    async with guarded(tmp_path) as running, signed_client(running, "alice") as alice:
        assert (await alice.send("T", b"x")).code == 0
        assert (await alice.send("U", b"x")).code == NO_PERMISSION


@scenario
async def test_settings_are_answered_without_secrets(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        answer = await root.call(Code.GET_BROKER_CONFIG)
        assert b"initAuthenticationUser=******" in answer.body
        assert b"12345678" not in answer.body
        change = await root.call(Code.UPDATE_BROKER_CONFIG, {}, b"authenticationEnabled=false")
        assert change.code == NO_PERMISSION


@scenario
async def test_sender_cannot_choose_its_identity(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "alice")
        async with signed_client(running, "alice") as alice:
            fields = {"faForwardedUser": "root", "faForwardedAddress": "10.0.0.1", "caller": "root"}
            answer = await alice.call(Code.GET_BROKER_CONFIG, fields)
            assert (answer.code, answer.remark) == (NO_PERMISSION, "User:alice may not forward requests of other users.")
            assert (await alice.call(Code.GET_BROKER_CONFIG, {"caller": "root"})).code == NO_PERMISSION


@scenario
async def test_natively_decoded_and_binary_requests_are_checked_alike(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.listen_port)
        header = send_header("T", 0, "")
        good = RequestSigner("root", "12345678").signed(header, b"x")
        for binary in (False, True):
            for ext, code in ((good, 0), (good | {"b": "U"}, NO_PERMISSION), (good | {"e": "1"}, NO_PERMISSION)):
                writer.write(encode_request(Code.SEND_MESSAGE_V2, ext, b"x", opaque=1, binary=binary))
                answer = await _answer(reader)
                assert answer.code == code
        writer.close()
        assert (await root.call(Code.GET_TOPIC_CONFIG, {"topic": "U"})).code == 17


async def _answer(reader: asyncio.StreamReader) -> Command:
    length = await reader.readexactly(4)
    return FrameDecoder().feed(length + await reader.readexactly(int.from_bytes(length, "big")))[0]


@scenario
async def test_without_access_control_users_cannot_be_managed(tmp_path: Path) -> None:
    async with broker(tmp_path) as running, signed_client(running, "") as peer:
        answer = await peer.call(Code.AUTH_CREATE_USER, {"username": "eve"}, b'{"password":"x","userType":"Super"}')
        assert answer.code == 1
        assert "authenticationEnabled=true" in (answer.remark or "")


@scenario
async def test_authorization_without_authentication_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="authenticationEnabled=true with it"):
        async with broker(tmp_path, authorization_enabled=True):
            pass


# Records that are named by their position.


@scenario
async def test_message_of_another_topic_is_not_read_by_its_offset(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "alice", "Topic:Mine All", "Group:G Sub")
        await root.send("Secret", b"secret")
        await root.send("Mine", b"mine")
        offsets = {topic: await _offset(root, topic) for topic in ("Secret", "Mine")}
        async with signed_client(running, "alice") as alice:
            for named in ({}, {"topic": "Mine"}):
                answer = await alice.call(Code.VIEW_MESSAGE_BY_ID, {"offset": str(offsets["Secret"]), **named})
                assert (answer.code, answer.body) == (NO_PERMISSION, b"")
                answer = await alice.call(Code.VIEW_MESSAGE_BY_ID, {"offset": str(offsets["Mine"]), **named})
                assert answer.code == 0
            back = {"group": "G", "delayLevel": "0"}
            answer = await alice.call(Code.CONSUMER_SEND_MSG_BACK, {"offset": str(offsets["Secret"]), **back})
            assert answer.code == NO_PERMISSION
            assert (await alice.call(Code.CONSUMER_SEND_MSG_BACK, {"offset": str(offsets["Mine"]), **back})).code == 0
            answer = await alice.call(Code.VIEW_MESSAGE_BY_ID, {"offset": "999999"})
            assert (answer.code, "no message begins" in (answer.remark or "")) == (NO_PERMISSION, True)


async def _offset(root: Client, topic: str) -> int:
    return records(await root.pull(topic, 0))[0].physical_offset


def _commit_of(sent: Command) -> dict[str, str]:
    """The fields of the request that commits a half message of group P."""
    return {
        "producerGroup": "P",
        "tranStateTableOffset": sent.ext["queueOffset"],
        "commitLogOffset": str(int(sent.ext["msgId"][-16:], 16)),
        "commitOrRollback": "8",
    }


@scenario
async def test_transaction_of_another_topic_cannot_be_ended(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "alice", "Topic:Mine Pub")
        sent = await root.send("Secret", b"half", TRAN_MSG="true", PGROUP="P", UNIQ_KEY="K")
        assert sent.code == 0, sent.remark
        end = _commit_of(sent)
        async with signed_client(running, "alice") as alice:
            for named in ({}, {"topic": "Mine"}, {"topic": TRANS_HALF_TOPIC}):
                answer = await alice.call(Code.END_TRANSACTION, end | named)
                assert answer.code == NO_PERMISSION
                assert "Topic:Secret" in (answer.remark or "")
        await allow(root, "alice", "Topic:Secret Pub")
        async with signed_client(running, "alice") as alice:
            assert (await alice.call(Code.END_TRANSACTION, end)).code == 0
        assert bodies(await root.pull("Secret", 0)) == [b"half"]


@scenario
async def test_transaction_is_ended_with_the_topic_of_its_check(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "alice", "Topic:Mine Pub")
        async with signed_client(running, "alice") as alice:
            sent = await alice.send("Mine", b"half", TRAN_MSG="true", PGROUP="P", UNIQ_KEY="K")
            assert sent.code == 0, sent.remark
            checked = {"topic": TRANS_HALF_TOPIC, "fromTransactionCheck": "true"}
            answer = await alice.call(Code.END_TRANSACTION, _commit_of(sent) | checked)
            assert answer.code == 0, answer.remark
        assert bodies(await root.pull("Mine", 0)) == [b"half"]


@scenario
async def test_property_of_a_message_does_not_change_its_topic(tmp_path: Path) -> None:
    async with guarded(tmp_path) as running, signed_client(running, "root") as root:
        await create_user(root, "alice", "Topic:Mine Pub")
        await create_user(root, "bob", "Topic:Mine Get")
        async with signed_client(running, "alice") as alice, signed_client(running, "bob") as bob:
            sent = await alice.send("Mine", b"x", DELAY="3", REAL_TOPIC="Secret", REAL_QID="0", UNIQ_KEY="K")
            assert sent.code == 0, sent.remark
            offset = {"offset": str(int(sent.ext["msgId"][-16:], 16))}
            assert (await alice.call(Code.VIEW_MESSAGE_BY_ID, offset)).code == NO_PERMISSION
            held = await bob.call(Code.VIEW_MESSAGE_BY_ID, offset)  # a delayed message counts as one of its destination
            assert (held.code, [record.topic for record in records(held)]) == (0, ["SCHEDULE_TOPIC_XXXX"])
