"""Hosts as bytes and the two kinds of message id.

A host is its address (4 or 16 bytes) and its port as four bytes: 8 or 20 bytes. An offset message id names a place in a
broker's log: store host and physical offset (8 bytes) as upper-case hex, 32 or 56 digits; clients connect to that host. The
producer generates a unique key:

    4/16 address   2 process id   4 seed   4 milliseconds since the month began (local time)   2 counter

Other readers treat a unique key as opaque text; clients in other languages generate it differently and in lower case.
"""

from __future__ import annotations

import struct
import time
from ipaddress import IPv6Address, ip_address
from typing import Final

from firearrow.wire.errors import ProtocolError, shown

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_KEY_HEAD: Final = struct.Struct(">HI")
_KEY_TAIL: Final = struct.Struct(">IH")


def host_bytes(ip: str, port: int) -> bytes:
    """Return address and port as stored in a record. IPv4-mapped IPv6 addresses become IPv4, the only form old readers know."""
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + _I32.pack(port)


def host_text(host: bytes) -> str:
    """Return `ip:port`, with brackets around an IPv6 address."""
    if len(host) not in (8, 20):
        raise ProtocolError(f"a host of {len(host)} bytes, expected 8 or 20")
    (port,) = _I32.unpack_from(host, len(host) - 4)
    address = ip_address(host[:-4])
    return f"{address}:{port}" if len(host) == 8 else f"[{address}]:{port}"


def offset_msg_id(host: bytes, physical_offset: int) -> str:
    return (host + _I64.pack(physical_offset)).hex().upper()


def parse_offset_msg_id(msg_id: str) -> tuple[bytes, int]:
    """Return the store host and the physical offset of an offset message id."""
    try:
        raw = bytes.fromhex(msg_id)
    except ValueError:
        raw = b""
    if len(msg_id) not in (32, 56) or len(raw) * 2 != len(msg_id):
        raise ProtocolError(f"the message id {shown(msg_id)}, expected 32 or 56 hex digits")
    return raw[:-8], _I64.unpack_from(raw, len(raw) - 8)[0]


class UniqueKeys:
    """Generator of the unique keys of a process. The caller passes the time; 65536 keys per millisecond are distinct."""

    __slots__ = ("_counter", "_month_ends_ms", "_month_starts_ms", "_prefix")

    def __init__(self, ip: str, pid: int, seed: int = 0) -> None:
        self._prefix = (host_bytes(ip, 0)[:-4] + _KEY_HEAD.pack(pid & 0xFFFF, seed & 0xFFFFFFFF)).hex().upper()
        self._month_starts_ms = 0
        self._month_ends_ms = 0
        self._counter = 0

    def next(self, now_ms: int) -> str:
        if not self._month_starts_ms <= now_ms < self._month_ends_ms:
            self._month_starts_ms, self._month_ends_ms = _month_around(now_ms)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return self._prefix + _KEY_TAIL.pack(now_ms - self._month_starts_ms, counter).hex().upper()


def _month_around(now_ms: int) -> tuple[int, int]:
    now = time.localtime(now_ms // 1000)
    year, month = now.tm_year, now.tm_mon
    starts = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    ends = time.mktime((year + month // 12, month % 12 + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(starts) * 1000, int(ends) * 1000
