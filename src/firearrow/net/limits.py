"""Limits of a server's connections: their number, the bytes they hold in memory, and deadlines.

The settings are part of the settings of every server. `Limits` are their values for a running server, `net/budget.py` enforces
those that all connections share.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass

from firearrow.config.fields import setting
from firearrow.net.tls import TlsSettings

MIB = 1024 * 1024
_WRITE_HIGH = MIB
_WRITE_LOW = MIB // 4
_MAX_DESCRIPTORS = 1_048_576  # a higher limit is not useful, and "unlimited" is not a number


@dataclass(slots=True)
class ListenerSettings(TlsSettings):
    """Limits and TLS, part of the settings of every server."""

    max_connections: int = setting(
        0,
        "connections to all ports together; 0 for half of the open files that the system allows, a quarter at a name server",
        key="maxConnections",
        low=0,
        high=_MAX_DESCRIPTORS,
    )
    max_connections_per_address: int = setting(
        0,
        "connections from one address, except this machine's loopback; 0 for half of maxConnections",
        key="maxConnectionsPerAddress",
        low=0,
        high=_MAX_DESCRIPTORS,
    )
    max_incoming_bytes: int = setting(
        128 * MIB,
        "bytes of requests that have not arrived completely, of all connections",
        key="maxIncomingBytes",
        low=32 * MIB,
        high=2**40,
    )
    max_outgoing_bytes: int = setting(
        64 * MIB,
        "bytes of responses that clients have not read, of all connections; twice as much memory may be in use",
        key="maxOutgoingBytes",
        low=32 * MIB,
        high=2**40,
    )
    write_buffer_high_water_mark: int = setting(
        _WRITE_HIGH, "bytes of unread responses at which the requests of a connection wait; 0 for the default", low=0, high=2**30
    )
    write_buffer_low_water_mark: int = setting(
        _WRITE_LOW, "bytes of unread responses below which they are served again; 0 for the default", low=0, high=2**30
    )
    frame_timeout_millis: int = setting(
        30_000, "ms within which a request must arrive completely, and a new connection send its first", low=100, high=86_400_000
    )
    handshake_timeout_millis: int = setting(
        10_000, "ms for the first byte and the TLS handshake on a port with a certificate", low=100, high=86_400_000
    )
    write_timeout_millis: int = setting(
        30_000, "ms after which a connection is closed that does not read its responses", low=100, high=86_400_000
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a running server."""

    connections: int = _MAX_DESCRIPTORS
    connections_per_address: int = _MAX_DESCRIPTORS
    incoming_bytes: int = 128 * MIB
    outgoing_bytes: int = 64 * MIB
    write_high: int = _WRITE_HIGH
    write_low: int = _WRITE_LOW
    frame_timeout_ms: int = 30_000
    handshake_timeout_ms: int = 10_000
    write_timeout_ms: int = 30_000


def limits_of(settings: ListenerSettings, descriptor_share: float) -> Limits:
    """Return the limits of a server that may use this share of the process's file descriptors for connections."""
    connections = settings.max_connections or max(16, int(descriptor_limit() * descriptor_share))
    high = settings.write_buffer_high_water_mark or _WRITE_HIGH
    return Limits(
        connections=connections,
        connections_per_address=settings.max_connections_per_address or max(16, connections // 2),
        incoming_bytes=settings.max_incoming_bytes,
        outgoing_bytes=settings.max_outgoing_bytes,
        write_high=high,
        write_low=min(settings.write_buffer_low_water_mark or _WRITE_LOW, high // 2),
        frame_timeout_ms=settings.frame_timeout_millis,
        handshake_timeout_ms=settings.handshake_timeout_millis,
        write_timeout_ms=settings.write_timeout_millis,
    )


def descriptor_limit() -> int:
    """Return the number of files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, _MAX_DESCRIPTORS)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit. Return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # the limit stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()
