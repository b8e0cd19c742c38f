"""Addresses: `host:port` texts, peer names of sockets, and listening sockets.

An IPv4 peer that reaches a dual-stack listener shows up as `::ffff:a.b.c.d`; it is an IPv4 peer all the same and is stored as
one (old decoders cannot read records with IPv6 hosts), so such addresses are unmapped here, once.
"""

from __future__ import annotations

import errno
import socket

BACKLOG = 1024
FAST_PORT_GAP = 2  # the fast port is the listen port - 2
WILDCARDS = ("0.0.0.0", "::", "")
_PAIR_ATTEMPTS = 64


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as (host, port)."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) < 65536:
        raise ValueError(f"address {text!r} is not of the form host:port with a port of 1 to 65535")
    return host, int(port_text)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address_list(text: str) -> list[str]:
    """`a:1;b:2` as its addresses, each checked, in order, without repetition."""
    addresses: dict[str, None] = {}
    for part in text.split(";"):
        if part.strip():
            parse_address(part)
            addresses[part.strip()] = None
    return list(addresses)


def unmapped(ip: str) -> str:
    """A peer's address as text: IPv4-mapped IPv6 becomes IPv4, a zone (`%eth0`) is dropped."""
    if ":" not in ip:
        return ip
    ip = ip.partition("%")[0]
    head, _, tail = ip.rpartition(":")
    return tail if head.lower() == "::ffff" and "." in tail else ip


def advertised_ip(bind_address: str) -> str:
    """What peers are told to dial when nobody said: the address listened on, or for a wildcard this machine's own."""
    if bind_address not in WILDCARDS:
        return bind_address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only makes the system choose the interface of its default route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


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
    """The address of a host, an IPv4 one if it has any; records hold addresses, not names. ValueError if it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ValueError(f"{host!r} is not an IP address, nor a host name that resolves") from error
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return unmapped(str(first[4][0]))


def bind(host: str, port: int) -> socket.socket:
    """A bound, not yet listening TCP socket; port 0 lets the system choose. OSError names the address."""
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
    """Sockets for a broker's listen port and its fast port (listen port - 2); port 0 finds a free pair."""
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
    raise OSError(errno.EADDRINUSE, f"found no free pair of ports on {host} in {_PAIR_ATTEMPTS} attempts")
