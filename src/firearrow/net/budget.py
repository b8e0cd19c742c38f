"""The shared limits of a server's connections: how many there are and how many bytes they hold in memory.

Connections. A connection beyond `maxConnections` or `maxConnectionsPerAddress` is refused. If another connection has never sent a
complete request, the oldest such one is closed in its place: idle connections do not keep clients out.

Incoming bytes are those of requests that have not arrived completely. Outgoing bytes are those of responses that a peer has not
read. A connection reports its bytes when they exceed a threshold, once per read or write of many messages, and the ledger keeps
the total of each direction.

- Above half of the limit, large requests are read from a few connections at a time, and a connection with unread responses has
  no further request served. Connections that make no progress meanwhile are closed, the oldest first.
- Above the limit, the oldest are closed at once, and no request is served until their memory is free, in the next iteration of
  the event loop. The total therefore exceeds the limit by one read or one response at most.

Large responses are also limited per iteration of the event loop, so that many connections that do read, and pull as much as they
can, do not keep others from their turn. Requests that wait for either limit are served in order of arrival.

A share is as old as its request (incoming), or as the time since the peer last read half of what was waiting (outgoing). A client
that works is never among the oldest for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol

from firearrow.net.limits import Limits

if TYPE_CHECKING:
    from firearrow.net.connection import Connection

SMALL = 64 * 1024  # bytes of a connection that are never throttled
CHECK_S = 0.05  # between checks while a total is above half of its limit
STALL_S = 0.15  # without a byte, after which an incomplete request counts as stalled
UNREAD_S = 1.0  # after which a peer that has not read half of its responses counts as stalled
RESPONSE_BYTES = 8 * 1024 * 1024  # of large responses in one iteration of the event loop; copying them takes about 5 ms
FREE_READERS = 8  # connections that may send large requests above half of the limit
_NOTICE_S = 5.0  # between two log messages of a kind

log = logging.getLogger("firearrow.net")


@dataclass(slots=True, eq=False)
class _Share:
    size: int
    peak: int
    since_s: float
    changed_s: float
    aborted: bool = False


class ByteLedger:
    """Bytes that connections hold in one direction."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.leaving = 0  # of it: bytes of connections that are aborted, until the event loop has closed them
        self.shares: dict[Connection, _Share] = {}

    @property
    def is_high(self) -> bool:
        """Return whether more than half of the limit is in use, without what is being freed."""
        return self.total - self.leaving > self.limit // 2

    def set(self, conn: Connection, size: int, now_s: float) -> _Share:
        share = self.shares.get(conn)
        if share is None:
            share = self.shares[conn] = _Share(0, size, now_s, now_s)
        elif share.aborted:
            return share
        self.total += size - share.size
        share.size = size
        share.changed_s = now_s
        if 2 * size <= share.peak:
            share.peak, share.since_s = size, now_s
        elif size > share.peak:
            share.peak = size
        return share

    def remove(self, conn: Connection) -> None:
        share = self.shares.pop(conn, None)
        if share is not None:
            self.total -= share.size
            if share.aborted:
                self.leaving -= share.size

    def mark_aborted(self, share: _Share) -> None:
        share.aborted = True
        self.leaving += share.size

    @property
    def is_exceeded(self) -> bool:
        """Return whether more than the limit is in use, without what is being freed."""
        return self.total - self.leaving > self.limit

    def oldest(self) -> list[tuple[Connection, _Share]]:
        return sorted((item for item in self.shares.items() if not item[1].aborted), key=lambda item: item[1].since_s)


class Guest(Protocol):
    """An accepted connection, with or without a protocol yet."""

    address: str

    @property
    def is_silent(self) -> bool:
        """Return whether the peer has not sent a complete request yet."""
        ...

    def abort(self) -> None: ...


class ConnectionBudget:
    """`refused` counts connections by limit, `closed` connections that were closed in favour of others, by reason."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.incoming = ByteLedger(limits.incoming_bytes)
        self.outgoing = ByteLedger(limits.outgoing_bytes)
        self.refused: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.is_exhausted = False  # no large response may be written now; an attribute, because every pull checks it
        self.notices = Notices()
        self._loop = asyncio.get_running_loop()
        self._guests: dict[Guest, None] = {}
        self._silent: dict[Guest, None] = {}  # candidates, oldest first; those that have sent a request are removed late
        self._per_address: Counter[str] = Counter()
        self._throttled: dict[Connection, None] = {}  # oldest first
        self._waiting: dict[Connection, None] = {}  # for outgoing bytes, oldest first
        self._responded = 0  # bytes of large responses in this iteration of the event loop
        self._check: asyncio.TimerHandle | None = None

    # Connections

    @property
    def connections(self) -> int:
        return len(self._guests)

    @property
    def busiest_address(self) -> int:
        """Return the number of connections from the address that has most."""
        return max(self._per_address.values(), default=0)

    def admit(self, guest: Guest) -> bool:
        """Count a connection. False if it must be refused."""
        limits, address = self.limits, guest.address
        counted = not _is_loopback(address)
        if counted and self._per_address[address] >= limits.connections_per_address:
            self._refuse("address", f"{address} has {limits.connections_per_address} connections; raise maxConnectionsPerAddress")
            return False
        if len(self._guests) >= limits.connections and not self._close_silent():
            self._refuse("total", f"{limits.connections} connections are open; raise maxConnections")
            return False
        self._guests[guest] = self._silent[guest] = None
        if counted:
            self._per_address[address] += 1
        return True

    def leave(self, guest: Guest) -> None:
        """Forget a connection. Calling it again has no effect."""
        if guest not in self._guests:
            return
        del self._guests[guest]
        self._silent.pop(guest, None)
        if self._per_address[guest.address] > 1:
            self._per_address[guest.address] -= 1
        else:
            del self._per_address[guest.address]

    def _close_silent(self) -> bool:
        while self._silent:
            guest = next(iter(self._silent))
            del self._silent[guest]
            if guest.is_silent:
                self.closed["silent"] += 1
                self.notices.warn("silent", f"{self.limits.connections} connections are open; closing those that sent no request")
                self.leave(guest)
                guest.abort()
                return True
        return False

    def _refuse(self, limit: str, why: str) -> None:
        self.refused[limit] += 1
        self.notices.warn(limit, f"refusing connections: {why}")

    # Bytes

    def note_incoming(self, conn: Connection, size: int, *, new_request: bool) -> None:
        """Record the bytes of an incomplete request. May close connections, also this one."""
        ledger, now_s = self.incoming, self._loop.time()
        share = ledger.set(conn, size, now_s)
        if new_request:
            share.since_s, share.peak = now_s, size
        for holder, held in ledger.oldest() if ledger.is_exceeded else ():
            self._close_incoming(holder, held)
            if not ledger.is_exceeded:
                break
        if not ledger.is_high:
            self._release_throttled()
        elif size > SMALL and len(ledger.shares) - len(self._throttled) > FREE_READERS and not share.aborted:
            self._throttled[conn] = None
            conn.throttle(on=True)
        self._check_later()

    def incoming_complete(self, conn: Connection) -> None:
        """Record that no incomplete request is left."""
        self.incoming.remove(conn)
        if self._throttled:
            self._release_throttled()

    def note_outgoing(self, conn: Connection, size: int) -> bool:
        """Record the unread responses of a connection. Return whether it must wait. May close connections, also this one."""
        ledger = self.outgoing
        ledger.set(conn, size, self._loop.time())
        if ledger.is_exceeded:
            self._refresh_outgoing()
            for holder, share in ledger.oldest() if ledger.is_exceeded else ():
                self._close_outgoing(holder, share)
                if not ledger.is_exceeded:
                    break
        self._update_exhausted()
        self._check_later()
        return ledger.is_high

    def outgoing_complete(self, conn: Connection) -> None:
        """Record that few or no unread responses are left."""
        self.outgoing.remove(conn)
        if self.is_exhausted and not self._responded:
            self._loop.call_soon(self._serve_waiting)

    def note_response(self, size: int) -> None:
        """Record a large response."""
        if not self._responded:
            self._loop.call_soon(self._end_iteration)
        self._responded += size
        self._update_exhausted()

    def wait(self, conn: Connection) -> None:
        """Serve a connection's requests when the budget is no longer exhausted."""
        self._waiting[conn] = None
        self._check_later()

    def unread_since_s(self, conn: Connection) -> float | None:
        """Return the time since which the peer has not read half of its responses; None if few are waiting."""
        share = self.outgoing.shares.get(conn)
        return None if share is None else share.since_s

    def forget(self, conn: Connection) -> None:
        """Remove a closed connection."""
        self._throttled.pop(conn, None)
        self._waiting.pop(conn, None)
        self.outgoing_complete(conn)
        self.incoming_complete(conn)

    def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _check_later(self) -> None:
        if self._check is None and (self.incoming.is_high or self.outgoing.is_high or self._waiting):
            self._check = self._loop.call_later(CHECK_S, self._relieve)

    def _relieve(self) -> None:
        """Close stalled connections while a total is above half of its limit."""
        self._check = None
        now_s = self._loop.time()
        if self.outgoing.is_high:
            self._refresh_outgoing()
            for conn, share in self.outgoing.oldest():
                if not self.outgoing.is_high or now_s - share.since_s < UNREAD_S:
                    break
                self._close_outgoing(conn, share)
        if self.incoming.is_high:
            for conn, share in self.incoming.oldest():
                if not self.incoming.is_high:
                    break
                if conn not in self._throttled and now_s - share.changed_s >= STALL_S:
                    self._close_incoming(conn, share)
        self._release_throttled()
        self._serve_waiting()
        self._check_later()

    def _end_iteration(self) -> None:
        self._responded = 0
        self._serve_waiting()

    def _update_exhausted(self) -> None:
        self.is_exhausted = self.outgoing.total > self.outgoing.limit or self._responded > RESPONSE_BYTES

    def _serve_waiting(self) -> None:
        self._update_exhausted()
        while self._waiting and not self.is_exhausted:
            conn = next(iter(self._waiting))
            del self._waiting[conn]
            conn.serve_held()

    def _refresh_outgoing(self) -> None:
        """Update the shares: connections report when they write, not when the peer reads."""
        now_s = self._loop.time()
        for conn, share in list(self.outgoing.shares.items()):
            size = conn.unsent_bytes
            if share.aborted:
                continue
            if size > SMALL or conn.full:
                self.outgoing.set(conn, size, now_s)
            else:
                self.outgoing.remove(conn)

    def _release_throttled(self) -> None:
        while self._throttled:
            if self.incoming.is_high and len(self.incoming.shares) - len(self._throttled) >= FREE_READERS:
                return
            conn = next(iter(self._throttled))
            del self._throttled[conn]
            share = self.incoming.shares.get(conn)
            if share is not None:
                share.changed_s = self._loop.time()
            conn.throttle(on=False)

    def _close_incoming(self, conn: Connection, share: _Share) -> None:
        self.closed["incoming"] += 1
        why = f"{self.incoming.total} bytes of incomplete requests are in memory, maxIncomingBytes is {self.incoming.limit}"
        self.notices.warn("incoming", f"closing {conn.peer}, which sent {share.size} bytes of a request: {why}")
        self.incoming.mark_aborted(share)
        conn.abort()

    def _close_outgoing(self, conn: Connection, share: _Share) -> None:
        self.closed["outgoing"] += 1
        why = f"{self.outgoing.total} bytes of unread responses are in memory, maxOutgoingBytes is {self.outgoing.limit}"
        self.notices.warn("outgoing", f"closing {conn.peer}, which has not read {share.size} bytes: {why}")
        self.outgoing.mark_aborted(share)
        conn.abort()


class Notices:
    """Log messages that an attacker could cause in any number: one of each kind every few seconds, with the number left out."""

    def __init__(self) -> None:
        self._next_s: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def warn(self, kind: str, text: str, level: int = logging.WARNING) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_s.get(kind, 0.0):
            self._left_out[kind] += 1
            return
        self._next_s[kind] = now_s + _NOTICE_S
        more = self._left_out.pop(kind, 0)
        log.log(level, "%s%s", text, f" ({more} more since the last message)" if more else "")


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
