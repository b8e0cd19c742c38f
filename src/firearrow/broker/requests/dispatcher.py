"""Dispatch of requests to their handlers: the service behind the broker's listeners.

Sends and pulls have paths of their own; all other requests have a handler in a table. The requests of a read are served in their
order. If they take long, the rest waits until other connections had a turn. The messages appended by sends are written at the end
of the event-loop iteration (group_commit.py).

An error of the peer is answered with a code and a reason; an error of the broker is answered with code 1 and logged. In both
cases the connection stays open, and the requests behind the bad one are served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.pull.handler import PullHandler
from firearrow.broker.pull.long_polling import ParkedPull
from firearrow.broker.requests.flow_control import FlowControl
from firearrow.broker.requests.responses import Refused
from firearrow.broker.roles.replication import Forward
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.send.handler import PERM_WRITE, SendHandler
from firearrow.broker.tables import clients
from firearrow.net.connection import LARGE_RESPONSE
from firearrow.net.server import Connection
from firearrow.net.slow_requests import SLICE_MS, SlowRequestLog
from firearrow.store.errors import StoreError, TooLargeError
from firearrow.wire.accelerated import enable_native_headers
from firearrow.wire.codes import RequestCode, ResponseCode, not_supported
from firearrow.wire.errors import HeaderError, ProtocolError
from firearrow.wire.frame import Command, encode_response

log = logging.getLogger("firearrow.broker")

_MANY = 8  # requests of one read
_SENDS = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
_PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
# Exception -> response code; the first match counts.
_FAULTS = (
    (HeaderError, ResponseCode.INVALID_PARAMETER),
    (ProtocolError, ResponseCode.MESSAGE_ILLEGAL),
    (TooLargeError, ResponseCode.MESSAGE_ILLEGAL),
    (StoreError, ResponseCode.SERVICE_NOT_AVAILABLE),
)


@dataclass(slots=True)
class ConnectionState:
    """The dispatcher's state of a connection."""

    in_flight: int = 0  # unanswered sends
    parked: set[ParkedPull] = field(default_factory=set)


class RequestDispatcher:
    """The service behind the broker's listeners."""

    def __init__(
        self,
        context: BrokerContext,
        handlers: dict[int, Handler],
        sends: SendHandler,
        pulls: PullHandler,
        commit: GroupCommit,
        flow: FlowControl,
        now_ms: Callable[[], int],
    ) -> None:
        enable_native_headers()
        self._context = context
        self._stats = context.stats
        self._now_ms = now_ms
        self._handlers = handlers
        self._sends = sends
        self._pulls = pulls
        self._commit = commit
        self._flow = flow
        self._slow_requests = SlowRequestLog(log)
        self._closed: str | None = None  # the reason why sends are rejected; None: they are accepted
        self._forward: Forward | None = None  # forwards sends instead of rejecting them
        self._forwarding_handlers: frozenset[int] = frozenset()
        self.forwarded_codes: frozenset[int] = frozenset()  # requests that the leader of the group serves and authorizes

    def connected(self, conn: Connection) -> None:
        conn.state = ConnectionState()

    def disconnected(self, conn: Connection) -> None:
        self._pulls.disconnected(conn)
        clients.connection_closed(self._context, conn)

    def received(self, conn: Connection, commands: list[Command]) -> list[Command] | None:
        now = self._now_ms()
        took_ms = 0  # for all requests so far; read after those that may take long
        refused: Refused | None = None
        checked = False  # once per read: does the broker accept sends at all?
        for request in commands:
            code = request.code
            try:
                if code in _SENDS:
                    if not checked:
                        checked = True
                        refused = self._refuse_sends(conn, now)
                        if refused is not None and refused.code == ResponseCode.SYSTEM_BUSY:
                            # The commit that ends this iteration measures it, though nothing is written.
                            self._commit.schedule_commit(now)
                    if refused is not None:
                        if self._forward is not None:
                            self._forward(conn, request)
                            continue
                        raise refused
                    self._sends.send(conn, request, now)
                    if not self._commit.scheduled_ms:
                        self._commit.schedule_commit(now)
                    continue
                if conn.must_wait:  # peers do not read: the response would only wait in memory
                    return _behind(commands, request, 0)
                if code in _PULLS:
                    response = self._pulls.pull(conn, request, now)
                    took_ms = self._now_ms() - now
                    if response is not None:
                        self._stats.served(code, self._pulls.last_response_code, took_ms)
                else:
                    handler = self._handlers.get(code)
                    if handler is None:
                        raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(code))
                    response = handler(conn, request, now)
                    took_ms = self._now_ms() - now
                    if response is not None:
                        self._stats.served(code, ResponseCode.SUCCESS, took_ms)
            except Exception as error:  # noqa: BLE001 (every error is answered)
                refusal = _refusal(conn, request, error)
                response = encode_response(request, refusal.code, refusal.remark, refusal.ext)
                unknown = refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED  # all of these count as one
                took_ms = self._now_ms() - now
                self._stats.served(-1 if unknown else code, refusal.code, took_ms)
            if response and not request.flag & 2:
                conn.write(response)
                if len(response) > LARGE_RESPONSE:
                    conn.note_response(len(response))
            if took_ms >= SLICE_MS:
                self._slow_requests.served(conn, request, took_ms, now + took_ms)
                return _behind(commands, request, 1)
        if len(commands) >= _MANY:  # a few sends take microseconds: not worth a reading of the clock
            ended = self._now_ms()
            if ended - now >= SLICE_MS:
                self._slow_requests.served(conn, commands[-1], ended - now, ended)
        return None

    def use_handlers(self, handlers: dict[int, Handler], forwarding: Collection[int] = ()) -> None:
        """Serve requests with another table of handlers from now on, after a change of role. Some may forward requests."""
        self._handlers = handlers
        self._forwarding_handlers = frozenset(forwarding)
        self._find_forwarded()

    def reject_sends(self, reason: str = "the broker is stopping; send to another one", forward: Forward | None = None) -> None:
        """Reject or forward sends from now on. Those accepted so far are committed."""
        self._closed = reason
        self._forward = forward
        self._find_forwarded()
        self._commit.commit_scheduled()

    def accept_sends(self) -> None:
        """Accept sends again."""
        self._closed = self._forward = None
        self._find_forwarded()

    def _find_forwarded(self) -> None:
        self.forwarded_codes = self._forwarding_handlers | (frozenset() if self._forward is None else _SENDS)

    def _refuse_sends(self, conn: Connection, now: int) -> Refused | None:
        store, permission = self._context.store, self._context.settings.broker_permission
        if not permission & PERM_WRITE:
            return Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker {self._context.name} takes no messages: brokerPermission is {permission}, 2 is needed",
            )
        if self._closed is not None:
            return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, self._closed)
        if not store.writable:
            return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, store.refusal or "the store takes no messages")
        busy = self._flow.refusal(now, conn.state.in_flight, self._commit.pending_since_ms, self._commit.stall)
        return None if busy is None else Refused(ResponseCode.SYSTEM_BUSY, busy)


def _behind(commands: list[Command], request: Command, distance: int) -> list[Command]:
    """Return the commands from `distance` behind `request` on. Rare, so that the loop over the commands needs no counter."""
    position = next(i for i, command in enumerate(commands) if command is request)
    return commands[position + distance :]


def _refusal(conn: Connection, request: Command, error: Exception) -> Refused:
    """Return the response to a failed request, and log the error if it is the broker's."""
    if isinstance(error, Refused):
        return error
    for kind, code in _FAULTS:
        if isinstance(error, kind):
            return Refused(code, str(error) if kind is StoreError else f"request {request.code}: {error}")
    log.error("request %d from %s failed", request.code, conn.peer, exc_info=error)
    text = f"request {request.code} failed in the broker: {type(error).__name__}: {error}"
    return Refused(ResponseCode.SYSTEM_ERROR, text)
