"""Options shared by all clients, and their validation.

Producers, consumers and `Admin` accept them as keywords (`ClientKeywords`); `client_options` validates them and returns
`ClientOptions`. Clients on one event loop with equal options share connections, routes and heartbeats.

Durations in the public API are seconds or a `timedelta` and carry no unit in their names. Inside the client they are converted
once, to a value whose name ends in `_ms` or `_s`.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from firearrow.net.address import parse_address_list
from firearrow.net.tls import ClientTls, client_context
from firearrow.wire.codes import LANGUAGE_CODES
from firearrow.wire.names import TRACE_TOPIC

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger("firearrow.client")

NAME_SERVERS_VARIABLE: Final = "NAMESRV_ADDR"

F = TypeVar("F", bound=Callable[..., Any])

NameServers = str | Iterable[str] | None

Duration = float | timedelta
"""Seconds, or a timedelta."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys that sign requests; `security_token` accompanies temporary keys."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ValueError("credentials need a non-empty access key and a non-empty secret key")

    @classmethod
    def from_file(cls, path: str) -> Credentials:
        """Read `accessKey`, `secretKey` and optionally `securityToken` from a JSON file or a file like Apache's tools.yml.

        ValueError for a file without these keys. Files that other users can read are logged as a warning.
        """
        try:
            with open(path, encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    log.warning("%s contains a secret key and can be read by other users: chmod 600 %s", path, path)
                found = _parse_credentials(file.read())
            return cls(found["accesskey"], found["secretkey"], found.get("securitytoken"))
        except (OSError, ValueError, KeyError) as error:
            why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"credentials file {path!r}: expected accessKey and secretKey as JSON or YAML: {why}") from None

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r}, secret_key=...)"


def _parse_credentials(text: str) -> dict[str, str]:
    """Return the entries of a JSON object, or of lines `name: value` and `name=value`, with names in lower case."""
    if text.lstrip().startswith("{"):
        return {name.lower(): str(value) for name, value in json.loads(text).items() if value is not None}
    lines = (re.fullmatch(r"\s*(\w+)\s*[:=]\s*(.*?)\s*", line) for line in text.splitlines())
    return {line[1].lower(): line[2].strip("'\"") for line in lines if line is not None}


class ClientKeywords(TypedDict, total=False):
    """Keywords that every client accepts; see `KEYWORD_HELP`."""

    instance_name: str | None
    client_ip: str | None
    unit_name: str | None
    namespace: str
    credentials: Credentials | None
    tls: bool | SSLContext
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_key_password: str | None
    tls_insecure: bool
    heartbeat_interval: Duration
    route_interval: Duration
    persist_offset_interval: Duration
    connect_timeout: Duration
    request_timeout: Duration
    language: str
    trace: bool
    trace_topic: str
    broker_addresses: tuple[tuple[str, str], ...]


KEYWORD_HELP: Final = """\
name_server               "host:port;host:port" or a list of addresses; default: the environment variable NAMESRV_ADDR
instance_name             part of the client id; default: unique in this process
client_ip                 part of the client id and of message ids; default: the address of this machine
unit_name                 suffix of the client id
namespace                 prefix of topics and groups on the brokers: `namespace%name`
credentials               `Credentials` to sign requests with
tls                       True: encrypt and verify the certificates of servers; or an SSLContext
tls_ca                    PEM file or directory with the CA certificates to trust; default: those of the system
tls_cert, tls_key         PEM files with the certificate to present and its private key
tls_key_password          password of the private key
tls_insecure              True: encrypt, but accept any certificate. Each tls_ option implies tls=True
heartbeat_interval        between heartbeats to the brokers (30 s)
route_interval            between refreshes of topic routes (30 s)
persist_offset_interval   between commits of consumed offsets (5 s)
connect_timeout           for opening a connection (3 s)
request_timeout           for requests other than sends and pulls (3 s)
language                  the language reported to brokers (PYTHON)
trace, trace_topic        record a message trace, and the topic it goes to
broker_addresses          pairs (address in a route, address to connect to instead)

Durations are seconds or a `timedelta`."""

_DURATIONS: Final = frozenset(name for name in ClientKeywords.__annotations__ if name.endswith(("_interval", "_timeout")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Validated options. For their meaning see `KEYWORD_HELP`."""

    name_servers: tuple[str, ...]
    instance_name: str | None = None
    client_ip: str | None = None
    unit_name: str | None = None
    namespace: str = ""
    credentials: Credentials | None = None
    tls: bool | SSLContext = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_insecure: bool = False
    heartbeat_interval_ms: int = 30_000
    route_interval_ms: int = 30_000
    persist_offset_interval_ms: int = 5_000
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    language: str = "PYTHON"
    trace: bool = False
    trace_topic: str = TRACE_TOPIC
    broker_addresses: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.name_servers:
            raise ValueError(f"no name server: pass its address (host:port;host:port) or set {NAME_SERVERS_VARIABLE}")
        if self.language not in LANGUAGE_CODES:
            raise ValueError(f"language is {self.language!r}, expected one of {', '.join(LANGUAGE_CODES)}")
        if self.client_ip is not None:
            ip_address(self.client_ip)  # raises a ValueError that names the value
        for name in ("instance_name", "unit_name"):
            value = getattr(self, name)
            if value is not None and (not value or "@" in value):
                raise ValueError(f"{name} is {value!r}, expected a non-empty string without @")
        self.tls_context()  # raises a ValueError that names an unusable file

    def tls_context(self) -> SSLContext | None:
        """Return the context for a new connection, None for a plain one."""
        parts = (self.tls_ca, self.tls_cert, self.tls_key, self.tls_key_password)
        if any(part is not None for part in parts) or self.tls_insecure:
            if not isinstance(self.tls, bool):
                raise ValueError(
                    "tls is an SSLContext; load certificates into it instead of giving tls_ca, tls_cert or tls_insecure"
                )
            return client_context(ClientTls(*parts, insecure=self.tls_insecure))
        return client_context(ClientTls()) if self.tls is True else self.tls or None

    def security_keywords(self) -> ClientKeywords:
        """Return the keywords for credentials and TLS, for another client of the same cluster."""
        return ClientKeywords(
            credentials=self.credentials,
            tls=self.tls,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_key_password=self.tls_key_password,
            tls_insecure=self.tls_insecure,
        )

    def keywords(self) -> dict[str, Any]:
        """Return the keywords from which `client_options` makes these options again."""
        names = ClientKeywords.__annotations__
        return {name: getattr(self, f"{name}_ms") / 1000 if name in _DURATIONS else getattr(self, name) for name in names}


def document_keywords(constructor: F) -> F:
    """Append the shared keywords to the docstring of a constructor, for `help()`."""
    constructor.__doc__ = f"{inspect.cleandoc(constructor.__doc__ or '')}\n\n{KEYWORD_HELP}"
    return constructor


def client_options(name_server: NameServers = None, **keywords: Any) -> ClientOptions:
    """Validate the keywords of a client. ValueError and TypeError name the problem."""
    unknown = keywords.keys() - ClientKeywords.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown option {sorted(unknown)[0]!r}, expected one of {', '.join(ClientKeywords.__annotations__)}")
    values: dict[str, Any] = {
        f"{name}_ms" if name in _DURATIONS else name: milliseconds(name, value) if name in _DURATIONS else value
        for name, value in keywords.items()
    }
    return ClientOptions(name_servers=name_server_addresses(name_server), **values)


def name_server_addresses(name_server: NameServers) -> tuple[str, ...]:
    """Parse `a:9876;b:9876`, a list of such strings, or the environment variable."""
    if name_server is None:
        name_server = os.environ.get(NAME_SERVERS_VARIABLE, "")
    texts = [name_server] if isinstance(name_server, str) else list(name_server)
    return tuple(parse_address_list(";".join(text.replace(",", ";") for text in texts)))


def seconds(name: str, value: Duration, *, or_zero: bool = False) -> float:
    """Convert a duration of the public API. ValueError unless it is above 0, or 0 with `or_zero`."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf or not (number or or_zero):
        raise ValueError(f"{name} is {value!r}, expected seconds {'from 0 on' if or_zero else 'above 0'} or a timedelta")
    return float(number)


def milliseconds(name: str, value: Duration) -> int:
    """Convert a duration to whole milliseconds, at least 1. ValueError as in `seconds`."""
    return max(1, round(seconds(name, value) * 1000))
