"""`firearrow cluster ...`: what name servers know of clusters; the members of `firearrow up --cluster`, by data directory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.cli.arguments import CommandGroup, LineParser
from firearrow.cli.local_cluster import control, state
from firearrow.cli.operator.broker import summary
from firearrow.cli.terminal import Output
from firearrow.cli.words import DEFAULT_DATA
from firearrow.client.errors import FirearrowError


def add(verbs: CommandGroup) -> None:
    verbs.add("list", list_, "list clusters with what their brokers do together")
    show = verbs.add("show", show_, "show the brokers of a cluster with their addresses")
    show.add_argument("cluster", metavar="CLUSTER", nargs="?")

    _members(verbs.add("kill", break_, "kill members of `firearrow up --cluster` (SIGKILL)", example="cluster kill broker-a"))
    _members(verbs.add("stop", break_, "stop members of `firearrow up --cluster` in good order (SIGTERM)"))
    _members(verbs.add("start", break_, "start members again, with the configuration that they had"))
    status = verbs.add("status", status_, "show the members of `firearrow up --cluster` and how they are")
    _data(status)
    status.add_argument("name", metavar="NAME", nargs="*", help="members (default: all)")


def _members(parser: LineParser) -> None:
    _data(parser)
    parser.add_argument("name", metavar="NAME", nargs="+", help="such as namesrv, broker-a, broker-a-slave, n0")


def _data(parser: LineParser) -> None:
    parser.add_argument(
        "--data", metavar="DIR", type=_directory, default=_directory(DEFAULT_DATA), help=f"that of `up` (default: {DEFAULT_DATA})"
    )


def _directory(text: str) -> Path:
    return Path(text).absolute()


async def list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    brokers = await admin.list_brokers()
    topics = await admin.list_topics()
    rows = []
    for cluster in sorted({one.cluster for one in brokers}):
        members = [await summary(admin, one) for one in brokers if one.cluster == cluster]
        masters = {one["broker"] for one in members if one["broker_id"] == 0}
        rows.append(
            {
                "cluster": cluster,
                "masters": len(masters),
                "slaves": len(members) - len(masters),
                "topics": sum(1 for topic in topics if masters & set(topic.brokers) and topic.kind == "normal"),
                "put_tps": sum(one["put_tps"] or 0.0 for one in members),
                "get_tps": sum(one["get_tps"] or 0.0 for one in members),
                "unreachable": [one["broker"] for one in members if one["problem"]],
            }
        )
    out.rows(rows, ["cluster", "masters", "slaves", "topics", "put_tps", "get_tps", "unreachable"])


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    rows = [
        {"cluster": one.cluster, "broker": one.name, "broker_id": one.broker_id, "address": one.address}
        for one in await admin.list_brokers(cluster=options.cluster)
    ]
    out.rows(rows, ["cluster", "broker", "broker_id", "address"])


async def break_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    for name in options.name:
        out.text(await control.ask(options.data, options.verb, name))


async def status_(admin: Admin, options: argparse.Namespace, out: Output) -> int:
    """Exit code 1 if one of them does not run."""
    cluster = control.current(options.data)
    wanted = options.name or [member.name for member in cluster.members]
    ids = await _ids(cluster.namesrv)
    rows = []
    for name in wanted:
        member = cluster.member(name)
        broker_id = ids.get((member.broker, member.address)) if member.pid is not None else None
        row: dict[str, Any] = {
            "name": name,
            "role": _role(member, broker_id),
            "state": member.state,
            "pid": str(member.pid or ""),
        }
        rows.append(row | {"address": member.address, "broker_id": broker_id, "data": member.data})
    out.rows(rows, ["name", "role", "state", "pid", "address", "broker_id", "data"])
    return int(any(row["state"] != "running" for row in rows))


def _role(member: state.MemberState, broker_id: int | None) -> str:
    """What the name server says of members of an elected group."""
    if member.role != "elected" or broker_id is None:
        return member.role
    return "follower" if broker_id else "leader"


async def _ids(namesrv: str) -> dict[tuple[str, str], int]:
    """(broker's name, address) -> broker id, as the cluster's name server has it; nothing if that is among the dead."""
    try:
        async with Admin(namesrv, request_timeout=2) as of_cluster:
            return {(one.name, one.address): one.broker_id for one in await of_cluster.list_brokers()}
    except FirearrowError:
        return {}
