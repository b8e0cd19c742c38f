"""`firearrow cluster`: clusters that the name server knows, and the members of `firearrow up --cluster`."""

from __future__ import annotations

import asyncio
from dataclasses import astuple
from pathlib import Path
from typing import Any

import click

from firearrow.admin.aio import Admin
from firearrow.auth.bootstrap import FIRST_USER_FILE
from firearrow.cli.arguments import CLUSTER, DEFAULT_DATA
from firearrow.cli.command import FAILURE, SUCCESS, Group, log_level_option, options, output_option, run_async
from firearrow.cli.local_cluster import control, state
from firearrow.cli.operator.broker import summary
from firearrow.cli.security import SecurityArguments
from firearrow.cli.terminal import Output
from firearrow.client.errors import FirearrowError
from firearrow.client.options import Credentials

cluster = Group("cluster", help="List clusters; kill, stop and start members of `firearrow up --cluster`.")


@cluster.admin_command("list")
async def list_clusters(admin: Admin, out: Output) -> None:
    """List clusters with the total rates of their brokers."""
    brokers = await admin.list_brokers()
    topics = await admin.list_topics()
    rows = []
    for name in sorted({one.cluster for one in brokers}):
        members = [await summary(admin, one) for one in brokers if one.cluster == name]
        masters = {one["broker"] for one in members if one["broker_id"] == 0}
        rows.append({
            "cluster": name,
            "masters": len(masters),
            "slaves": len(members) - len(masters),
            "topics": sum(1 for topic in topics if masters & set(topic.brokers) and topic.kind == "normal"),
            "put_tps": sum(one["put_tps"] or 0.0 for one in members if one["broker_id"] == 0),
            "get_tps": sum(one["get_tps"] or 0.0 for one in members),
            "unreachable": [one["broker"] for one in members if one["problem"]],
        })  # fmt: skip
    out.rows(rows, ["cluster", "masters", "slaves", "topics", "put_tps", "get_tps", "unreachable"])


@cluster.admin_command("show")
@click.argument("cluster", type=CLUSTER, required=False)
async def show(admin: Admin, out: Output, cluster: str | None) -> None:
    """List the brokers of a cluster with their addresses."""
    columns = ["cluster", "broker", "broker_id", "address"]
    brokers = await admin.list_brokers(cluster=cluster)
    out.rows([dict(zip(columns, astuple(one), strict=True)) for one in brokers], columns)


# ---- members of `firearrow up --cluster`


member_options = options(
    click.option(
        "--data", metavar="DIR", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True, help="--data of `up`."
    ),
    output_option,
    log_level_option("error"),
)


def _add_control_command(verb: str, help_: str, epilog: str | None = None) -> None:
    @cluster.command(verb, help=help_, epilog=epilog)
    @click.argument("names", metavar="NAME...", nargs=-1, required=True)
    @member_options
    def control_members(names: tuple[str, ...], data: Path, output: str, log_level: str) -> int:
        return run_async(_control(verb, names, data.absolute(), Output(output)), log_level=log_level)


_add_control_command(
    "kill",
    "Kill members with SIGKILL. NAME is a member such as namesrv, broker-a, broker-a-slave or n0.",
    "Example: firearrow cluster kill broker-a",
)
_add_control_command("stop", "Stop members with SIGTERM.")
_add_control_command("start", "Start members again with the same configuration.")


@cluster.command("status")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@member_options
def status(names: tuple[str, ...], data: Path, output: str, log_level: str) -> int:
    """Show the members and their states. The exit code is 1 if one does not run."""
    return run_async(_status(names, data.absolute(), Output(output)), log_level=log_level)


async def _control(verb: str, names: tuple[str, ...], data: Path, out: Output) -> int:
    async def work() -> int:
        for name in names:
            result = await control.request(data, verb, name)
            out.item({"name": name, "action": verb, "result": result}, result)
        return SUCCESS

    return await out.with_activity(work(), f"{verb} {', '.join(names)}")


async def _status(names: tuple[str, ...], data: Path, out: Output) -> int:
    known = control.current(data)
    keys = SecurityArguments(default_file=str(data / FIRST_USER_FILE)).credentials()
    ids = await _registered_ids(known.namesrv, keys)
    rows = []
    for name in names or [member.name for member in known.members]:
        member = known.member(name)
        broker_id = ids.get((member.broker, member.address)) if member.pid is not None else None
        row: dict[str, Any] = {"name": name, "role": _role(member, broker_id), "state": member.state, "pid": member.pid}
        rows.append(row | {"address": member.address, "broker": member.broker, "broker_id": broker_id, "data": member.data})
    shown = [row | {"pid": str(row["pid"] or "")} for row in rows] if out.for_people else rows
    out.rows(shown, ["name", "role", "state", "pid", "address", "broker_id", "data"])
    return FAILURE if any(row["state"] != "running" for row in rows) else SUCCESS


def _role(member: state.MemberState, broker_id: int | None) -> str:
    """Return the role of a member; that of an elected member is known from its broker id."""
    if member.role != "elected" or broker_id is None:
        return member.role
    return "follower" if broker_id else "leader"


async def _registered_ids(namesrv: str, keys: Credentials | None) -> dict[tuple[str, str], int]:
    """Return (broker name, address) -> broker id; nothing if the cluster's name server does not answer."""
    try:
        async with asyncio.timeout(2), Admin(namesrv, credentials=keys) as admin:
            return {(one.name, one.address): one.broker_id for one in await admin.list_brokers()}
    except (FirearrowError, TimeoutError):
        return {}
