"""A follower passes on what only its leader can do: clients learn of a new leader when they next ask for routes, 30 s later.

A request goes to the leader as it came, and the leader's answer comes back as the answer to it. While there is no leader,
requests wait for one, for WAIT_MS at most; if this member is elected, it serves them itself. What the leader refuses because it
is none any more, or what is lost with its connection, is tried again within that time. The leader stores such a message once: it
remembers for a while what was passed on to it, and a new leader what the last one stored (broker/dedup.py).

A request that was passed on already (a bit in its flag says so) is not passed on again: two members that take each other for the
leader would play ball with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext

from firearrow.broker.dedup.dedup import PASSED_ON
from firearrow.clock import monotonic_ms
from firearrow.net.channel import Channel
from firearrow.net.errors import ConnectionLostError
from firearrow.net.server import Connection
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, encode_command, encode_response

WAIT_MS = 2_600  # clients give up after 3 s
MOST_WAITING = 20_000
CONNECT_TIMEOUT_MS = 500
_LOOK_S = 0.02


@dataclass(slots=True)
class ForwardedRequest:
    """One request: the waiter for its answer on the channel to the leader."""

    owner: LeaderForwarder
    conn: Connection
    request: Command
    until_ms: int
    deadline: float = 0.0

    def answered(self, answer: Command) -> None:
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self.owner.try_again(self, answer.remark or "")
            return
        self.owner.done(self, encode_response(self.request, answer.code, answer.remark, answer.ext, answer.body))

    def timed_out(self) -> None:
        self.owner.refuse(self, "the leader did not answer in time")

    def lost(self, error: ConnectionLostError) -> None:
        self.owner.try_again(self, str(error))


class LeaderForwarder:
    """`leader_address`: where the leader is, if it is known; `leads`: this member does; `serve` takes what is its own then."""

    def __init__(
        self,
        leader_address: Callable[[], str | None],
        leads: Callable[[], bool],
        serve: Callable[[Connection, Command], None],
        tls: SSLContext | None,
    ) -> None:
        self._leader_address = leader_address
        self._leads = leads
        self._serve = serve
        self._tls = tls
        self._channel: Channel | None = None
        self._waiting: deque[ForwardedRequest] = deque()
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    def pass_on(self, conn: Connection, request: Command) -> None:
        passed = ForwardedRequest(self, conn, request, monotonic_ms() + WAIT_MS)
        self._count += 1
        if request.flag & PASSED_ON:
            self.refuse(passed, "this broker is not the leader of its group")
        elif self._count > MOST_WAITING:
            self.refuse(passed, f"{MOST_WAITING} requests wait to be passed on to the leader")
        elif not self._waiting and self._ready():
            self._send(passed)
        else:
            self._wait(passed)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        while self._waiting:
            self.refuse(self._waiting.popleft(), "the broker is stopping")
        self._forget_channel()

    # Answers.

    def done(self, passed: ForwardedRequest, frame: bytes) -> None:
        self._count -= 1
        if not passed.request.is_oneway:
            passed.conn.write(frame)

    def refuse(self, passed: ForwardedRequest, why: str) -> None:
        text = f"{why}; send to the leader of the group, or try again"
        self.done(passed, encode_response(passed.request, ResponseCode.SERVICE_NOT_AVAILABLE, text))

    def try_again(self, passed: ForwardedRequest, why: str) -> None:
        if monotonic_ms() >= passed.until_ms:
            self.refuse(passed, why)
        else:
            self._wait(passed)

    # On their way.

    def _ready(self) -> bool:
        channel = self._channel
        return channel is not None and not channel.closed and channel.address == self._leader_address() and not self._leads()

    def _send(self, passed: ForwardedRequest) -> None:
        channel, request = self._channel, passed.request
        assert channel is not None
        opaque = channel.take_opaque()
        copy = Command(
            request.code,
            opaque,
            request.flag | PASSED_ON,
            request.language,
            request.version,
            request.remark,
            request.ext,
            request.body,
            request.binary,
        )
        if request.is_oneway:
            channel.write(encode_command(copy))
            self._count -= 1
        else:
            passed.deadline = asyncio.get_running_loop().time() + max(passed.until_ms - monotonic_ms(), 1) / 1000
            channel.submit(encode_command(copy), opaque, passed)

    def _wait(self, passed: ForwardedRequest) -> None:
        self._waiting.append(passed)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._look_for_leader())

    async def _look_for_leader(self) -> None:
        while self._waiting:
            if self._leads():
                self._serve_all()
            elif self._ready() or await self._connect():
                for _ in range(len(self._waiting)):
                    self._send(self._waiting.popleft())
            now = monotonic_ms()
            for _ in range(len(self._waiting)):
                passed = self._waiting.popleft()
                if now >= passed.until_ms:
                    self.refuse(passed, "the group has had no leader for a while")
                else:
                    self._waiting.append(passed)
            await asyncio.sleep(_LOOK_S)

    def _serve_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._count -= len(waiting)
        for passed in waiting:
            self._serve(passed.conn, passed.request)

    async def _connect(self) -> bool:
        self._forget_channel()
        address = self._leader_address()
        if address is None:
            return False
        try:
            self._channel = await Channel.connect(address, timeout_ms=CONNECT_TIMEOUT_MS, tls=self._tls)
        except OSError:
            return False
        return self._ready()

    def _forget_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and not channel.closed:
            channel.abandon("it does not lead any more")
