"""The forms of a cluster, and what each of its members is configured to be.

    2m             two masters: what one has stored is not at the other
    2m-2s-async    two masters, each with a slave that copies it
    2m-2s-sync     the same; a send is acknowledged when the slave has it, too
    dledger-3      one group of three that elects its master
    2xdledger-3    two such groups

Every form has one name server. A member's name is what `firearrow cluster kill NAME` calls it and the name of its directory.

A broker has its listen port, the fast port two below and, one above, the replication port. Members of an elected group talk to
each other three above. Brokers are ten ports apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from firearrow.net.address import WILDCARDS, advertised_ip, format_address

NAMESRV: Final = "namesrv"
HA_PORT_GAP: Final = 1
PEER_PORT_GAP: Final = 3
PORTS_OF_A_BROKER: Final = (-2, 0, HA_PORT_GAP, PEER_PORT_GAP)


class Endpoint(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def at(self, gap: int) -> str:
        """The address that others dial, `gap` ports further."""
        host = advertised_ip(self.host) if self.host in WILDCARDS else self.host
        return format_address(host, self.port + gap)


@dataclass(frozen=True)
class Member:
    """A process of the cluster."""

    name: str
    role: str  # as people are told; of an elected group only the group knows who leads
    broker: str  # the broker's name; empty for the name server
    address: str
    data: Path
    settings: Mapping[str, str] = field(hash=False)

    @property
    def is_namesrv(self) -> bool:
        return not self.broker


class _Seat(NamedTuple):
    name: str
    broker: str
    role: str
    number: int  # the place in its group: of slaves the broker id, of elected ones n0, n1, ...


def _masters(role: str, *brokers: str) -> list[_Seat]:
    return [_Seat(broker, broker, role, 0) for broker in brokers]


def _slaves(*brokers: str) -> list[_Seat]:
    return [_Seat(f"{broker}-slave", broker, "SLAVE", 1) for broker in brokers]


def _elected(broker: str, prefix: str = "") -> list[_Seat]:
    return [_Seat(f"{prefix}n{number}", broker, "elected", number) for number in range(3)]


FORMS: Final[dict[str, list[_Seat]]] = {
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
    """The members of a form, the name server first. `brokers` has a place for each of FORMS[form]; the first has
    `metrics_port`, the others have the next ones."""
    seats = FORMS[form]
    assert len(brokers) == len(seats), f"{form} has {len(seats)} brokers, and {len(brokers)} places were given"
    places = dict(zip(seats, brokers, strict=True))
    members = [_namesrv(data, namesrv, namesrv_settings or {})]
    for index, (seat, place) in enumerate(places.items()):
        own = {
            "brokerName": seat.broker,
            "bindAddress": place.host,
            "listenPort": str(place.port),
            "storePathRootDir": str(data / seat.name / "store"),
            "namesrvAddr": namesrv.at(0),
        }
        if place.host not in WILDCARDS:
            own["brokerIP1"] = place.host
        settings = {**own, **(broker_settings or {}), **_replication(seat, places)}
        if metrics_port:
            settings["metricsPromExporterPort"] = str(metrics_port + index)
        members.append(Member(seat.name, seat.role, seat.broker, place.at(0), data / seat.name, settings))
    return members


def _namesrv(data: Path, place: Endpoint, settings: Mapping[str, str]) -> Member:
    own = {"bindAddress": place.host, "listenPort": str(place.port), "kvConfigPath": str(data / NAMESRV / "kvConfig.json")}
    return Member(NAMESRV, "name server", "", place.at(0), data / NAMESRV, {**settings, **own})


def _replication(seat: _Seat, places: Mapping[_Seat, Endpoint]) -> dict[str, str]:
    group = {other: place for other, place in places.items() if other.broker == seat.broker}
    if seat.role == "elected":
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": seat.broker,
            "dLegerPeers": ";".join(f"n{other.number}-{place.at(PEER_PORT_GAP)}" for other, place in group.items()),
            "dLegerSelfId": f"n{seat.number}",
        }
    own = {"brokerRole": seat.role, "brokerId": str(seat.number), "haListenPort": str(places[seat].port + HA_PORT_GAP)}
    if seat.role == "SLAVE":
        master = next(place for other, place in group.items() if other.role != "SLAVE")
        own["haMasterAddress"] = master.at(HA_PORT_GAP)
    return own
