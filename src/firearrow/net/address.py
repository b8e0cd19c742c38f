"""Addresses: `host:port` strings, peer names of sockets, and bound sockets.

An IPv4 peer of a dual-stack listener appears as `::ffff:a.b.c.d`. It is stored as the IPv4 address, because old decoders cannot
read records with IPv6 hosts; `unmapped` performs this conversion.
"""

from __future__ import annotations

import errno
import socket

BACKLOG = 1024
FAST_PORT_GAP = 2  # the fast port is the listen port - 2
WILDCARDS = ("0.0.0.0", "::", "")
_PAIR_ATTEMPTS = 64


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port` or `[v6]:port`."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) < 65536:
        raise ValueError(f"address {text!r} is not of the form host:port with a port of 1 to 65535")
    return host, int(port_text)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address_list(text: str) -> list[str]:
    """Parse `a:1;b:2` into valid addresses, in order, without duplicates."""
    addresses: dict[str, None] = {}
    for part in text.split(";"):
        if part.strip():
            parse_address(part)
            addresses[part.strip()] = None
    return list(addresses)


def unmapped(ip: str) -> str:
    """Convert an IPv4-mapped IPv6 address to IPv4 and drop a zone (`%eth0`)."""
    if ":" not in ip:
        return ip
    ip = ip.partition("%")[0]
    head, _, tail = ip.rpartition(":")
    return tail if head.lower() == "::ffff" and "." in tail else ip


def advertised_ip(bind_address: str) -> str:
    """Return the default address for peers to dial: the bind address, or this machine's own for a wildcard."""
    if bind_address not in WILDCARDS:
        return bind_address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it makes the system choose the interface of the default route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def is_loopback(host: str) -> bool:
    """Return whether `host`, an address or a name, is reached from this machine only."""
    host = unmapped(host.strip("[]"))
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())


def is_local(host: str) -> bool:
    """Return whether `host` is an address of this machine: only those can be bound."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def host_name() -> str:
    return socket.gethostname()


def ip_of(host: str) -> str:
    """Resolve a host, preferring IPv4, because records contain addresses, not names. Raises ValueError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ValueError(f"{host!r} is not an IP address, nor a host name that can be resolved") from error
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return unmapped(str(first[4][0]))


def bind(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket that does not listen yet. Port 0 lets the system choose. The OSError names the address."""
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {format_address(host, port)}: {error.strerror}") from error
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and name[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(name)
    except OSError as error:
        sock.close()
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot listen on {format_address(host, port)}: {why}") from error
    sock.setblocking(False)
    return sock


def bind_pair(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Bind a broker's listen port and fast port (listen port - 2). Port 0 finds a free pair."""
    if port:
        if port <= FAST_PORT_GAP:
            why = f"listen port {port} leaves no room for the fast port, which is the listen port - {FAST_PORT_GAP}"
            raise OSError(errno.EADDRNOTAVAIL, why)
        main = bind(host, port)
        try:
            return main, bind(host, port - FAST_PORT_GAP)
        except OSError:
            main.close()
            raise
    for _ in range(_PAIR_ATTEMPTS):
        main = bind(host, 0)
        try:
            return main, bind(host, main.getsockname()[1] - FAST_PORT_GAP)
        except OSError:
            main.close()
    raise OSError(errno.EADDRINUSE, f"no free pair of ports on {host} after {_PAIR_ATTEMPTS} attempts")
