"""Forwarding of client requests from a follower to the leader.

Clients learn of a new leader when they next refresh their routes, up to 30 s later. Until then a follower forwards their
requests unchanged and returns the leader's responses. While there is no leader, requests wait for one, at most WAIT_MS; a
follower that is elected meanwhile serves them itself. A request is repeated within that time if the leader rejects it because
it was deposed, if its connection is lost, or if another leader is elected: the previous one may be unreachable. The leader
stores a repeated message once: it remembers forwarded messages for a while, and a new leader knows those of its predecessor
(broker/dedup/dedup.py).

With access control this member authenticates the client and signs the request itself, with the name and address of the client.
The leader authorizes the client (auth/gate.py).

A request that was already forwarded, marked by a bit in its flag, is not forwarded again. Otherwise two members that take each
other for the leader could forward it forever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

from firearrow.auth.gate import FORWARDED_ADDRESS, FORWARDED_USER, caller_of
from firearrow.broker.dedup.dedup import PASSED_ON
from firearrow.clock import monotonic_ms
from firearrow.net.channel import Channel
from firearrow.net.errors import ConnectionLostError
from firearrow.net.server import Connection
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, encode_command, encode_response
from firearrow.wire.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, RequestSigner

WAIT_MS = 2_600  # clients time out after 3 s
MAX_PENDING = 20_000
CONNECT_TIMEOUT_MS = 500
_RETRY_S = 0.02
_OF_CLIENT = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, FORWARDED_USER, FORWARDED_ADDRESS))


@dataclass(slots=True)
class ForwardedRequest:
    """One request, and the waiter for its response on the channel to the leader."""

    owner: LeaderForwarder
    conn: Connection
    request: Command
    until_ms: int
    deadline: float = 0.0

    def answered(self, answer: Command) -> None:
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self.owner.retry(self, answer.remark or "")
            return
        self.owner.done(self, encode_response(self.request, answer.code, answer.remark, answer.ext, answer.body))

    def timed_out(self) -> None:
        self.owner.refuse(self, "the leader did not respond in time")

    def lost(self, error: ConnectionLostError) -> None:
        self.owner.retry(self, str(error))


class LeaderForwarder:
    """Forwards requests to the leader.

    `leader_address` returns the leader's address if it is known, `leads` whether this member leads. `serve` handles a request
    locally.
    """

    def __init__(
        self,
        leader_address: Callable[[], str | None],
        leads: Callable[[], bool],
        serve: Callable[[Connection, Command], None],
        tls: SSLContext | None,
        signer: RequestSigner | None = None,
    ) -> None:
        self._leader_address = leader_address
        self._leads = leads
        self._serve = serve
        self._tls = tls
        self._signer = signer
        self._channel: Channel | None = None
        self._waiting: deque[ForwardedRequest] = deque()
        self._pending_count = 0
        self._task: asyncio.Task[None] | None = None

    def forward(self, conn: Connection, request: Command) -> None:
        forwarded = ForwardedRequest(self, conn, request, monotonic_ms() + WAIT_MS)
        self._pending_count += 1
        if request.flag & PASSED_ON:
            self.refuse(forwarded, "this broker does not lead its group")
        elif self._pending_count > MAX_PENDING:
            self.refuse(forwarded, f"{MAX_PENDING} requests are waiting for the leader")
        elif not self._waiting and self._ready():
            self._send(forwarded)
        else:
            self._wait(forwarded)

    def leader_changed(self) -> None:
        """Repeat the requests that wait for a leader that no longer leads, once its successor is known."""
        channel = self._channel
        if channel is not None and (self._leads() or self._leader_address() not in (None, channel.address)):
            self._drop_channel()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        while self._waiting:
            self.refuse(self._waiting.popleft(), "the broker is stopping")
        self._drop_channel()

    # Responses

    def done(self, forwarded: ForwardedRequest, frame: bytes) -> None:
        self._pending_count -= 1
        if not forwarded.request.is_oneway:
            forwarded.conn.write(frame)

    def refuse(self, forwarded: ForwardedRequest, why: str) -> None:
        text = f"{why}; send to the leader of the group, or retry"
        self.done(forwarded, encode_response(forwarded.request, ResponseCode.SERVICE_NOT_AVAILABLE, text))

    def retry(self, forwarded: ForwardedRequest, why: str) -> None:
        if monotonic_ms() >= forwarded.until_ms:
            self.refuse(forwarded, why)
        else:
            self._wait(forwarded)

    # Sending

    def _ready(self) -> bool:
        channel = self._channel
        return channel is not None and not channel.closed and channel.address == self._leader_address() and not self._leads()

    def _send(self, forwarded: ForwardedRequest) -> None:
        channel, request = self._channel, forwarded.request
        assert channel is not None
        opaque = channel.take_opaque()
        copy = Command(
            request.code,
            opaque,
            request.flag | PASSED_ON,
            request.language,
            request.version,
            request.remark,
            self._fields(forwarded),
            request.body,
            request.binary,
        )
        if request.is_oneway:
            channel.write(encode_command(copy))
            self._pending_count -= 1
        else:
            forwarded.deadline = asyncio.get_running_loop().time() + max(forwarded.until_ms - monotonic_ms(), 1) / 1000
            channel.submit(encode_command(copy), opaque, forwarded)

    def _fields(self, forwarded: ForwardedRequest) -> dict[str, Any]:
        """Return the fields of the forwarded request, with access control signed by this member in the name of the client."""
        request, caller = forwarded.request, caller_of(forwarded.request)
        if caller is None or self._signer is None:
            return request.ext
        fields = {key: value for key, value in request.ext.items() if key not in _OF_CLIENT}
        fields |= {FORWARDED_USER: caller.name, FORWARDED_ADDRESS: caller.address}
        return self._signer.signed(fields, request.body)

    def _wait(self, forwarded: ForwardedRequest) -> None:
        self._waiting.append(forwarded)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send_waiting())

    async def _send_waiting(self) -> None:
        while self._waiting:
            if self._leads():
                self._serve_all()
            elif self._ready() or await self._connect():
                for _ in range(len(self._waiting)):
                    self._send(self._waiting.popleft())
            now = monotonic_ms()
            for _ in range(len(self._waiting)):
                forwarded = self._waiting.popleft()
                if now >= forwarded.until_ms:
                    self.refuse(forwarded, f"the group has had no leader for {WAIT_MS} ms")
                else:
                    self._waiting.append(forwarded)
            await asyncio.sleep(_RETRY_S)

    def _serve_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._pending_count -= len(waiting)
        for forwarded in waiting:
            self._serve(forwarded.conn, forwarded.request)

    async def _connect(self) -> bool:
        self._drop_channel()
        address = self._leader_address()
        if address is None:
            return False
        try:
            self._channel = await Channel.connect(address, timeout_ms=CONNECT_TIMEOUT_MS, tls=self._tls)
        except OSError:
            return False
        return self._ready()

    def _drop_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and not channel.closed:
            channel.abandon("it no longer leads")
