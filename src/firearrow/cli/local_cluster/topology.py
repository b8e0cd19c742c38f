"""The forms of `firearrow up --cluster`, the configuration of their members, and the choice of ports.

    2m             two masters; each stores different messages
    2m-2s-async    two masters, each with a slave that replicates it
    2m-2s-sync     the same; a send is acknowledged when the slave has it too
    dledger-3      one group of three brokers that elects its leader
    2xdledger-3    two such groups

Every form has one name server. A member's name is its directory and what `firearrow cluster kill NAME` takes.

A broker uses its listen port, the fast port two below and the replication port one above. Members of an elected group connect to
each other three above. Brokers are ten ports apart. Ports are chosen before anything starts, because members are configured with
each other's addresses.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from firearrow.cli.servers.config import PORTS_APART, broker_values
from firearrow.net.address import WILDCARDS, advertised_ip, bind, format_address

NAMESRV: Final = "namesrv"
HA_PORT_GAP: Final = 1
PEER_PORT_GAP: Final = 3
BROKER_PORT_GAPS: Final = (-2, 0, HA_PORT_GAP, PEER_PORT_GAP)

# Below the range of ephemeral ports, so that no connection takes a port between its choice and the member's start.
_PORT_RANGE: Final = range(20_000, 32_000)
_ATTEMPTS: Final = 200
_IN_USE: Final = (errno.EADDRINUSE, errno.EACCES)


class Endpoint(NamedTuple):
    """Host and port that a server listens on."""

    host: str
    port: int

    def at(self, gap: int) -> str:
        """Return the address that others connect to, `gap` ports above."""
        host = advertised_ip(self.host) if self.host in WILDCARDS else self.host
        return format_address(host, self.port + gap)


@dataclass(frozen=True)
class Member:
    """A process of the cluster and its settings."""

    name: str
    role: str  # for display; `elected` for members of an elected group
    broker: str  # the broker's name; empty for the name server
    address: str
    data: Path
    settings: Mapping[str, str] = field(hash=False)


class _Slot(NamedTuple):
    name: str
    broker: str
    role: str
    number: int  # the broker id of a slave; the number of an elected member (n0, n1, ...)


def _masters(role: str, *brokers: str) -> list[_Slot]:
    return [_Slot(broker, broker, role, 0) for broker in brokers]


def _slaves(*brokers: str) -> list[_Slot]:
    return [_Slot(f"{broker}-slave", broker, "SLAVE", 1) for broker in brokers]


def _elected(broker: str, prefix: str = "") -> list[_Slot]:
    return [_Slot(f"{prefix}n{number}", broker, "elected", number) for number in range(3)]


FORMS: Final[dict[str, list[_Slot]]] = {
    "2m": _masters("ASYNC_MASTER", "broker-a", "broker-b"),
    "2m-2s-async": _masters("ASYNC_MASTER", "broker-a", "broker-b") + _slaves("broker-a", "broker-b"),
    "2m-2s-sync": _masters("SYNC_MASTER", "broker-a", "broker-b") + _slaves("broker-a", "broker-b"),
    "dledger-3": _elected("broker-a"),
    "2xdledger-3": _elected("broker-a", "broker-a-") + _elected("broker-b", "broker-b-"),
}


def plan(
    form: str,
    data: Path,
    namesrv: Endpoint,
    brokers: Sequence[Endpoint],
    *,
    namesrv_settings: Mapping[str, str] | None = None,
    broker_settings: Mapping[str, str] | None = None,
    metrics_port: int = 0,
) -> list[Member]:
    """Return the members of a form, the name server first.

    `brokers` has an endpoint for each of FORMS[form]. The first broker uses `metrics_port`, the others the ports that follow.
    """
    slots = FORMS[form]
    assert len(brokers) == len(slots), f"{form} has {len(slots)} brokers, but {len(brokers)} endpoints were given"
    endpoints = dict(zip(slots, brokers, strict=True))
    members = [_namesrv(data, namesrv, namesrv_settings or {})]
    for index, (slot, endpoint) in enumerate(endpoints.items()):
        own = broker_values(slot.broker, endpoint.host, endpoint.port, data / slot.name / "store")
        settings = {**own, "namesrvAddr": namesrv.at(0), **(broker_settings or {}), **_replication(slot, endpoints)}
        if metrics_port:
            settings["metricsPromExporterPort"] = str(metrics_port + index)
        members.append(Member(slot.name, slot.role, slot.broker, endpoint.at(0), data / slot.name, settings))
    return members


def _namesrv(data: Path, endpoint: Endpoint, settings: Mapping[str, str]) -> Member:
    own = {"bindAddress": endpoint.host, "listenPort": str(endpoint.port), "kvConfigPath": str(data / NAMESRV / "kvConfig.json")}
    return Member(NAMESRV, "name server", "", endpoint.at(0), data / NAMESRV, {**settings, **own})


def _replication(slot: _Slot, endpoints: Mapping[_Slot, Endpoint]) -> dict[str, str]:
    group = {other: endpoint for other, endpoint in endpoints.items() if other.broker == slot.broker}
    if slot.role == "elected":
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": slot.broker,
            "dLegerPeers": ";".join(f"n{other.number}-{endpoint.at(PEER_PORT_GAP)}" for other, endpoint in group.items()),
            "dLegerSelfId": f"n{slot.number}",
        }
    own = {"brokerRole": slot.role, "brokerId": str(slot.number), "haListenPort": str(endpoints[slot].port + HA_PORT_GAP)}
    if slot.role == "SLAVE":
        master = next(endpoint for other, endpoint in group.items() if other.role != "SLAVE")
        own["haMasterAddress"] = master.at(HA_PORT_GAP)
    return own


def namesrv_endpoint(host: str, port: int) -> Endpoint:
    return Endpoint(host, port or _free_port(host, (0,), set()))


def broker_endpoints(host: str, first: int, count: int) -> list[Endpoint]:
    """Return endpoints from the port `first` on; for 0, on free ports."""
    if first:
        last = first + (count - 1) * PORTS_APART
        if last + max(BROKER_PORT_GAPS) > 65_535:
            raise ValueError(f"--broker-port {first}: the last of {count} brokers would use port {last}, without room above it")
        return [Endpoint(host, first + index * PORTS_APART) for index in range(count)]
    taken: set[int] = set()
    return [Endpoint(host, _free_port(host, BROKER_PORT_GAPS, taken)) for _ in range(count)]


def _free_port(host: str, gaps: Iterable[int], taken: set[int]) -> int:
    for _ in range(_ATTEMPTS):
        port = random.choice(_PORT_RANGE)
        wanted = {port + gap for gap in gaps}
        if wanted & taken:
            continue
        with contextlib.ExitStack() as held:
            try:
                for one in wanted:
                    held.enter_context(bind(host, one))
            except OSError as error:
                if error.errno not in _IN_USE:
                    raise
                continue
        taken |= wanted
        return port
    raise OSError(f"found no free ports on {host} in {_ATTEMPTS} attempts; choose them with --namesrv-port and --broker-port")
