"""What every kind of client can be told, checked once.

Producers and consumers take these as keywords (`ClientKeywords`); `client_options` turns them into a `ClientOptions`. Clients on
one event loop whose options are equal share connections, routes and heartbeats.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypedDict

from firearrow.net.address import parse_address_list
from firearrow.wire.codes import LANGUAGE_CODES
from firearrow.wire.names import TRACE_TOPIC

if TYPE_CHECKING:
    from ssl import SSLContext

NAME_SERVERS_VARIABLE: Final = "NAMESRV_ADDR"

NameServers = str | Iterable[str] | None


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys that requests are signed with; `security_token` for those that are valid for a session only."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ValueError("credentials need an access key and a secret key that are not empty")

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r}, secret_key=...)"


class ClientKeywords(TypedDict, total=False):
    """What every client takes as keywords; see `ClientOptions`."""

    instance_name: str | None
    client_ip: str | None
    unit_name: str | None
    namespace: str
    credentials: Credentials | None
    tls: bool | SSLContext
    heartbeat_interval_ms: int
    route_interval_ms: int
    persist_offset_interval_ms: int
    connect_timeout_ms: int
    request_timeout_ms: int
    language: str
    trace: bool
    trace_topic: str
    broker_addresses: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    name_servers: tuple[str, ...]
    instance_name: str | None = None  # part of the client id; None: process id and a number of its own
    client_ip: str | None = None  # part of the client id and of message ids; None: this machine's
    unit_name: str | None = None
    namespace: str = ""  # topics and groups are `namespace%name` on the brokers
    credentials: Credentials | None = None
    tls: bool | SSLContext = False  # True: encrypted, the server's certificate not checked, as Apache's clients do
    heartbeat_interval_ms: int = 30_000
    route_interval_ms: int = 30_000
    persist_offset_interval_ms: int = 5_000
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    language: str = "PYTHON"
    trace: bool = False  # message trace, to `trace_topic`
    trace_topic: str = TRACE_TOPIC
    broker_addresses: tuple[tuple[str, str], ...] = ()  # (what a name server says, where it is reached from here)

    def __post_init__(self) -> None:
        if not self.name_servers:
            raise ValueError(f"no name server: give its address (host:port;host:port) or set {NAME_SERVERS_VARIABLE}")
        for declared in fields(self):
            value = getattr(self, declared.name)
            if declared.name.endswith("_ms") and (not isinstance(value, int) or isinstance(value, bool) or value <= 0):
                raise ValueError(f"{declared.name} is {value!r}, expected a number of milliseconds above 0")
        if self.language not in LANGUAGE_CODES:
            raise ValueError(f"language is {self.language!r}, expected one of {', '.join(LANGUAGE_CODES)}")
        if self.client_ip is not None:
            ip_address(self.client_ip)  # its ValueError says it
        for name in ("instance_name", "unit_name"):
            value = getattr(self, name)
            if value is not None and (not value or "@" in value):
                raise ValueError(f"{name} is {value!r}, expected a text that is not empty and without @")


def client_options(name_server: NameServers = None, **keywords: Any) -> ClientOptions:
    """The options of a client that was given these keywords. ValueError and TypeError name what is wrong."""
    unknown = keywords.keys() - ClientKeywords.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown option {sorted(unknown)[0]!r}, expected one of {', '.join(ClientKeywords.__annotations__)}")
    return ClientOptions(name_servers=name_server_addresses(name_server), **keywords)


def name_server_addresses(name_server: NameServers) -> tuple[str, ...]:
    """`a:9876;b:9876`, or a list of such, or what the environment says."""
    if name_server is None:
        name_server = os.environ.get(NAME_SERVERS_VARIABLE, "")
    texts = [name_server] if isinstance(name_server, str) else list(name_server)
    return tuple(parse_address_list(";".join(text.replace(",", ";") for text in texts)))
