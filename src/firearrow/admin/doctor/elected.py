"""Checks of masters: every broker name has one, and every elected group has a majority of its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from firearrow.admin.brokers import broker_config
from firearrow.admin.cluster import BrokerAddress
from firearrow.admin.doctor.findings import ERROR, WARNING, Report
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import FirearrowError

_NO_MASTER: Final = "clients can neither send to it nor commit offsets"


async def check_masters(
    client: ClientInstance, report: Report, brokers: Sequence[BrokerAddress], reached: Sequence[BrokerAddress]
) -> None:
    """Report broker names without a master, and members of elected groups that do not run."""
    for name in sorted({broker.name for broker in brokers}):
        configs = [await _config(client, broker) for broker in reached if broker.name == name]
        members = [config for config in configs if config.get("enableDLegerCommitLog") == "true"]
        has_master = any(broker.is_master for broker in reached if broker.name == name)
        if members:
            _check_group(report, name, members, has_leader=has_master)
        elif not any(broker.is_master for broker in brokers if broker.name == name):
            report.add(
                ERROR, "masters", name, f"it has no master: {_NO_MASTER}",
                "start its master again (firearrow broker -c FILE with brokerId=0)",
            )  # fmt: skip


def _check_group(report: Report, name: str, running: Sequence[Mapping[str, str]], *, has_leader: bool) -> None:
    """Name the members to start, from the list of members in the configuration of those that run."""
    peers = parse_members(running[0].get("dLegerPeers", ""))
    missing = {member: peers[member] for member in sorted(peers.keys() - {config.get("dLegerSelfId") for config in running})}
    text = ", ".join(f"{member} ({address})" for member, address in missing.items())
    majority = len(peers) // 2 + 1
    if has_leader:
        if missing:
            report.add(WARNING, "masters", name, f"the elected group misses {text}", _start(missing))
        return
    cause = f"the elected group has no leader: {_NO_MASTER}"
    if len(running) < majority:
        cause += f"; {len(running)} of {len(peers)} members run, a majority is {majority}"
        report.add(ERROR, "masters", name, f"{cause}; {text} do not run", _start(missing))
    else:
        fix = "wait for the election; if it does not end, check that the members reach each other at dLegerPeers"
        report.add(ERROR, "masters", name, f"{cause}; {len(running)} of {len(peers)} members run", fix)


def _start(missing: Mapping[str, str]) -> str:
    return f"start {', '.join(missing)} again (firearrow broker -c FILE, or of `up --cluster`: firearrow cluster start NAME)"


def parse_members(peers: str) -> dict[str, str]:
    """Return member id -> address from `n0-host:port;n1-host:port`."""
    parts = (part.strip().partition("-") for part in peers.split(";") if part.strip())
    return {member: address for member, _, address in parts}


async def _config(client: ClientInstance, broker: BrokerAddress) -> Mapping[str, str]:
    try:
        return await broker_config(client, broker.address)
    except FirearrowError:
        return {}
