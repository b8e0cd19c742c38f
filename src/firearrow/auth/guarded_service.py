"""The service of a listener behind a gate: only admitted requests reach the service.

Measured per request with a signature and policies, beside serving it, on a busy core: 3.9 us for a pull, 4.2 us for a send of
100 bytes, 4.8 us for a send of 1 KB. A natively decoded header is parsed once more for the signature. A server
without access control has no guarded service and pays nothing.

An admitted request carries its sender (`Command.caller`). A refused request is answered with NO_PERMISSION, a malformed one with
the code that its handler would answer. Refused one-way requests are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from firearrow.auth.gate import AccessDeniedError, Gate, Rule
from firearrow.auth.settings import AuthSettings, whitelisted_codes
from firearrow.auth.table import AuthTable
from firearrow.net.connection import Connection, Service
from firearrow.wire.codes import ResponseCode
from firearrow.wire.errors import HeaderError, ProtocolError, shown
from firearrow.wire.frame import FLAG_ONEWAY, Command, encode_response
from firearrow.wire.signature import ACCESS_KEY

FAILED: Final = "Authentication failed. Please verify the credentials and try again."
LOGGED_PER_PERIOD: Final = 20
LOG_PERIOD_MS: Final = 10_000

log = logging.getLogger("firearrow.auth")

_NONE: Final[Collection[int]] = frozenset()


class GuardedService:
    """`forwarded` returns the codes that another server authorizes. `on_refused` gets request code and response code."""

    def __init__(
        self,
        service: Service,
        gate: Gate,
        now_ms: Callable[[], int],
        *,
        forwarded: Callable[[], Collection[int]] = lambda: _NONE,
        on_refused: Callable[[int, int], None] = lambda code, response_code: None,
    ) -> None:
        self._service = service
        self._gate = gate
        self._forwarded = forwarded
        self._on_refused = on_refused
        self._log = _LimitedLog(now_ms)

    def connected(self, conn: Connection) -> None:
        self._service.connected(conn)

    def disconnected(self, conn: Connection) -> None:
        self._service.disconnected(conn)

    def received(self, conn: Connection, commands: list[Command]) -> list[Command] | None:
        admit, address, forwarded = self._gate.admit, conn.peer_ip, self._forwarded()
        admitted: list[Command] = []
        for request in commands:
            try:
                request.caller = admit(request, address, forwarded=request.code in forwarded)
            except Exception as error:  # noqa: BLE001 (every error refuses the request)
                self._refuse(conn, request, error)
            else:
                admitted.append(request)
        return self._service.received(conn, admitted) if admitted else None

    def _refuse(self, conn: Connection, request: Command, error: Exception) -> None:
        code, remark = ResponseCode.NO_PERMISSION, FAILED
        if isinstance(error, AccessDeniedError):
            remark = error.remark
            self._log.refused(conn, request, remark)
        elif isinstance(error, HeaderError):
            code, remark = ResponseCode.INVALID_PARAMETER, f"request {request.code}: {error}"
        elif isinstance(error, ProtocolError):
            code, remark = ResponseCode.MESSAGE_ILLEGAL, f"request {request.code}: {error}"
        else:
            log.error("request %d from %s cannot be authorized", request.code, conn.peer, exc_info=error)
        self._on_refused(request.code, code)
        if not request.flag & FLAG_ONEWAY:
            conn.write(encode_response(request, code, remark))


def guarded(
    service: Service,
    settings: AuthSettings,
    table: AuthTable,
    rules: Mapping[int, Rule],
    now_ms: Callable[[], int],
    *,
    forwarded: Callable[[], Collection[int]] = lambda: _NONE,
    on_refused: Callable[[int, int], None] = lambda code, response_code: None,
) -> GuardedService:
    """Return a service behind the gate that the settings describe."""
    gate = Gate(
        table,
        rules,
        authorizes=settings.authorization_enabled,
        unsigned=whitelisted_codes("authenticationWhitelist", settings.authentication_whitelist),
        unauthorized=whitelisted_codes("authorizationWhitelist", settings.authorization_whitelist),
    )
    return GuardedService(service, gate, now_ms, forwarded=forwarded, on_refused=on_refused)


class _LimitedLog:
    """Log of refused requests, at most LOGGED_PER_PERIOD in LOG_PERIOD_MS: peers cause them."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._period_ends_ms = 0
        self._count = 0

    def refused(self, conn: Connection, request: Command, remark: str) -> None:
        now = self._now_ms()
        if now >= self._period_ends_ms:
            if self._count > LOGGED_PER_PERIOD:
                log.info("%d more requests were refused in this time", self._count - LOGGED_PER_PERIOD)
            self._period_ends_ms = now + LOG_PERIOD_MS
            self._count = 0
        self._count += 1
        if self._count <= LOGGED_PER_PERIOD:
            user = shown(request.ext.get(ACCESS_KEY))
            log.info("request %d of user %s from %s was refused: %s", request.code, user, conn.peer, shown(remark))
