"""Forwarding to the leader: requests that are answered, repeated, served locally or rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from firearrow.auth.gate import FORWARDED_USER, AccessDeniedError, Caller
from firearrow.auth.policies import PUB, TOPIC, Need
from firearrow.broker.dedup.dedup import PASSED_ON
from firearrow.ha.elected import forwarding
from firearrow.ha.elected.forwarding import ForwardedRequest, LeaderForwarder
from firearrow.net.channel import Channel
from firearrow.net.connection import Connection
from firearrow.net.errors import ConnectionLostError
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import FLAG_ONEWAY, Command, FrameDecoder, encode_response
from firearrow.wire.signature import RequestSigner
from tests.auth.kit import SUPER, Users, signed
from tests.broker.fake_peer import FakeConnection
from tests.support.waiting import run, until

LEADER = "10.0.0.1:10911"


class FakeChannel:
    """A connection to the leader that keeps the forwarded requests."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = False
        self.written: list[Command] = []
        self.waiters: list[ForwardedRequest] = []
        self.lost_on_abandon = False

    def take_opaque(self) -> int:
        return 1000 + len(self.written)

    def write(self, frame: bytes) -> None:
        self.written += FrameDecoder().feed(frame)

    def submit(self, frame: bytes, opaque: int, waiter: ForwardedRequest) -> None:
        self.write(frame)
        self.waiters.append(waiter)

    def abandon(self, reason: str) -> None:
        self.closed = True
        for waiter in self.waiters:
            if self.lost_on_abandon:
                waiter.lost(ConnectionLostError(reason))


class Follower:
    def __init__(self) -> None:
        self.leader: str | None = LEADER
        self.leads = False
        self.client = FakeConnection()
        self.served: list[Command] = []
        self.channels: list[FakeChannel] = []
        self.forwarder = LeaderForwarder(
            lambda: self.leader,
            lambda: self.leads,
            lambda conn, request: self.served.append(request),
            None,
            RequestSigner("inner", "12345678"),
        )

    async def connect(self, address: str, **options: Any) -> FakeChannel:
        self.channels.append(FakeChannel(address))
        return self.channels[-1]

    def forward(self, opaque: int = 7, flag: int = 0) -> None:
        request = Command(RequestCode.SEND_MESSAGE_V2, opaque, flag, ext={"a": "P"}, body=b"hello")
        self.forwarder.forward(cast(Connection, self.client), request)

    async def forwarded(self, count: int = 1) -> ForwardedRequest:
        """Wait until `count` requests have been sent to leaders; return the waiter of the last one."""
        await until(lambda: sum(len(channel.waiters) for channel in self.channels) == count)
        return self.channels[-1].waiters[-1]

    def answers(self) -> list[Command]:
        return [command for data in self.client.written for command in FrameDecoder().feed(data)]


Story = Callable[[Callable[[Follower], Awaitable[None]]], None]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Story:
    """Run a scenario on a follower and stop its forwarder."""

    def tell(scenario: Callable[[Follower], Awaitable[None]]) -> None:
        async def whole() -> None:
            follower = Follower()
            monkeypatch.setattr(Channel, "connect", follower.connect)
            await scenario(follower)
            await follower.forwarder.stop()

        run(whole())

    return tell


def answer(code: int, remark: str | None = None) -> Command:
    (command,) = FrameDecoder().feed(encode_response(Command(310, opaque=1000), code, remark, {"msgId": "M"}, b"body"))
    return command


def test_response_of_the_leader_is_returned_under_the_clients_number(told: Story) -> None:
    async def scenario(follower: Follower) -> None:
        follower.forward(opaque=7)
        waiter = await follower.forwarded()
        (sent,) = follower.channels[0].written
        assert (sent.code, sent.opaque, sent.body) == (RequestCode.SEND_MESSAGE_V2, 1000, b"hello")
        assert sent.flag & PASSED_ON
        waiter.answered(answer(ResponseCode.SUCCESS))
        (got,) = follower.answers()
        assert (got.code, got.opaque, got.ext["msgId"], got.body) == (ResponseCode.SUCCESS, 7, "M", b"body")

    told(scenario)


def test_request_of_an_authenticated_client_is_signed_by_the_member(told: Story) -> None:
    async def scenario(follower: Follower) -> None:
        users = Users("alice")
        users.add("inner", SUPER)
        users.allow("alice", "Topic:T Pub")
        gate = users.gate({int(RequestCode.SEND_MESSAGE_V2): lambda request: (Need(TOPIC, request.ext["b"], PUB),)})
        for topic in ("T", "U"):
            request = signed(RequestCode.SEND_MESSAGE_V2, "alice", b"hello", fields={"b": topic, FORWARDED_USER: "root"})
            request.caller = Caller(users.table.principal("alice"), "10.1.1.1")
            follower.forwarder.forward(cast(Connection, follower.client), request)
        await follower.forwarded(2)
        allowed, refused = follower.channels[0].written
        assert (allowed.ext["AccessKey"], allowed.ext[FORWARDED_USER], allowed.ext["b"]) == ("inner", "alice", "T")
        caller = gate.admit(allowed, "10.0.0.2")
        assert (caller.name, caller.address) == ("alice", "10.1.1.1")
        with pytest.raises(AccessDeniedError, match=r"Topic:U from 10\.1\.1\.1"):
            gate.admit(refused, "10.0.0.2")

    told(scenario)


def test_forwarded_request_is_not_forwarded_again(told: Story) -> None:
    async def scenario(follower: Follower) -> None:
        follower.forward(flag=PASSED_ON)
        (got,) = follower.answers()
        assert got.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "does not lead" in (got.remark or "")
        assert follower.channels == []

    told(scenario)


def test_one_way_request_is_forwarded_without_waiter(told: Story) -> None:
    async def scenario(follower: Follower) -> None:
        follower.forward(flag=FLAG_ONEWAY)
        await until(lambda: follower.channels and follower.channels[0].written)
        assert follower.channels[0].waiters == []
        assert follower.answers() == []

    told(scenario)


@pytest.mark.parametrize("deposed", [True, False])
def test_request_is_repeated_to_the_next_leader(told: Story, deposed: bool) -> None:
    async def scenario(follower: Follower) -> None:
        follower.forward()
        waiter = await follower.forwarded()
        follower.leader = "10.0.0.2:10911"
        if deposed:
            waiter.answered(answer(ResponseCode.SERVICE_NOT_AVAILABLE, "deposed"))
        else:
            waiter.lost(ConnectionLostError("gone"))
        again = await follower.forwarded(2)
        assert [channel.address for channel in follower.channels] == [LEADER, "10.0.0.2:10911"]
        again.answered(answer(ResponseCode.SUCCESS))
        assert [got.code for got in follower.answers()] == [ResponseCode.SUCCESS]

    told(scenario)


def test_elected_follower_serves_waiting_requests_itself(told: Story) -> None:
    async def scenario(follower: Follower) -> None:
        follower.leader = None
        follower.forward(opaque=1)
        follower.forward(opaque=2)
        await asyncio.sleep(0)
        assert follower.served == []
        follower.leads = True
        await until(lambda: follower.served)
        assert [request.opaque for request in follower.served] == [1, 2]
        assert follower.answers() == []

    told(scenario)


def test_waiting_requests_are_rejected_after_the_time_limit(told: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "WAIT_MS", 0)

    async def scenario(follower: Follower) -> None:
        follower.leader = None
        follower.forward()
        await until(follower.answers)
        (got,) = follower.answers()
        assert got.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no leader for 0 ms" in (got.remark or "")

    told(scenario)


def test_stop_rejects_waiting_requests_and_closes_the_connection(told: Story) -> None:
    async def scenario(follower: Follower) -> None:
        follower.forward(opaque=1)
        await follower.forwarded()
        follower.leader = None
        follower.forward(opaque=2)
        await follower.forwarder.stop()
        (got,) = follower.answers()
        assert got.opaque == 2
        assert "the broker is stopping" in (got.remark or "")
        assert follower.channels[0].closed

    told(scenario)


def test_request_is_repeated_when_its_leader_is_replaced(told: Story) -> None:
    """The previous leader may be unreachable: its connection is not closed, and it never answers."""

    async def scenario(follower: Follower) -> None:
        follower.forward()
        await follower.forwarded()
        follower.channels[0].lost_on_abandon = True
        follower.leader = None
        follower.forwarder.leader_changed()
        assert not follower.channels[0].closed  # it may still answer
        follower.leader = "10.0.0.2:10911"
        follower.forwarder.leader_changed()
        waiter = await follower.forwarded(2)
        assert [channel.address for channel in follower.channels] == [LEADER, "10.0.0.2:10911"]
        waiter.answered(answer(ResponseCode.SUCCESS))
        assert [got.code for got in follower.answers()] == [ResponseCode.SUCCESS]

    told(scenario)
