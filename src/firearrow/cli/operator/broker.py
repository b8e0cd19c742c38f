"""`firearrow broker list`, `status`, ...: the subcommands of `firearrow broker`, which without one starts a broker."""

from __future__ import annotations

from dataclasses import asdict, astuple
from typing import Any, Final

import click

from firearrow.admin.aio import Admin
from firearrow.admin.brokers import STATISTICS, decimal
from firearrow.admin.cluster import BrokerAddress
from firearrow.cli.arguments import BROKER, CLUSTER
from firearrow.cli.command import admin_command
from firearrow.cli.terminal import Output
from firearrow.client.errors import FirearrowError

COLUMNS: Final = [
    "cluster", "broker", "broker_id", "address", "version", "put_tps", "get_tps", "put_today", "disk_percent", "problem",
]  # fmt: skip
broker_argument = click.argument("broker", type=BROKER)


@admin_command("list")
@click.option("--cluster", type=CLUSTER, help="Only brokers of this cluster.")
async def list_brokers(admin: Admin, out: Output, cluster: str | None) -> None:
    """List brokers with their rates and disk usage."""
    out.rows([await summary(admin, one) for one in await admin.list_brokers(cluster=cluster)], COLUMNS)


async def summary(admin: Admin, broker: BrokerAddress) -> dict[str, Any]:
    """Return the row of a broker; `problem` if it does not answer."""
    row: dict[str, Any] = dict(zip(COLUMNS, astuple(broker), strict=False))
    try:
        status = await admin.broker_status(broker.address)
    except FirearrowError as error:
        return row | dict.fromkeys(COLUMNS[4:-1]) | {"problem": str(error)}
    today = decimal(status, "msgPutTotalTodayNow") - decimal(status, "msgPutTotalTodayMorning")
    return row | {
        "version": status.get("brokerVersionDesc"),
        "put_tps": decimal(status, "putTps"),
        "get_tps": decimal(status, "getTransferredTps"),
        "put_today": int(today),
        "disk_percent": round(decimal(status, "commitLogDiskRatio") * 100),
        "problem": None,
    }


async def address_of(admin: Admin, name: str) -> str:
    """Return the address of a broker given by name or address; by name, that of the master."""
    brokers = await admin.list_brokers(broker=name)
    return min(brokers, key=lambda one: one.broker_id).address


@admin_command("status")
@broker_argument
async def show_status(admin: Admin, out: Output, broker: str) -> None:
    """Show the runtime information of a broker, given by name or address."""
    out.record(dict(sorted((await admin.broker_status(await address_of(admin, broker))).items())))


@admin_command("stats", epilog="Example: firearrow broker stats broker-a TOPIC_PUT_NUMS Orders")
@broker_argument
@click.argument("name")
@click.argument("key")
async def show_statistics(admin: Admin, out: Output, broker: str, name: str, key: str) -> None:
    """Show a statistic of the last minute, hour and day."""
    found = await admin.broker_statistics(await address_of(admin, broker), name, key)
    spans = [] if found is None else [("minute", found.stats_minute), ("hour", found.stats_hour), ("day", found.stats_day)]
    out.rows([{"span": span} | asdict(item) for span, item in spans], ["span", "sum", "tps", "avgpt"])


show_statistics.help = (
    f"{show_statistics.help}\n\nNAME is one of {', '.join(STATISTICS)}. KEY is a topic, topic@group, or the cluster's name."
)


@admin_command("clean", destructive=True)
@broker_argument
@click.argument("what", metavar="queues|topics|log", type=click.Choice(("queues", "topics", "log")))
async def clean(admin: Admin, out: Output, broker: str, what: str) -> None:
    """Delete expired files of a broker.

    queues: consume queue files whose messages are deleted. topics: consume queues of deleted topics. log: expired commit log.
    """
    address = await address_of(admin, broker)
    actions = {"queues": admin.clean_expired_queues, "topics": admin.clean_unused_topics, "log": admin.delete_expired_log}
    if out.confirmed(f"clean {what} of {broker}"):
        await actions[what](address)
        out.done(f"cleaned {what} of {broker}", broker=broker, what=what)


@admin_command("wipe", destructive=True)
@broker_argument
async def wipe(admin: Admin, out: Output, broker: str) -> None:
    """Remove the write permission of a broker at all name servers, so that clients do not send to it."""
    await admin.list_brokers(broker=broker)
    if out.confirmed(f"remove the write permission of {broker}"):
        _print_changes(out, broker, await admin.wipe_write_permission(broker))


@admin_command("allow")
@broker_argument
async def allow(admin: Admin, out: Output, broker: str) -> None:
    """Restore the write permission of a broker at all name servers."""
    await admin.list_brokers(broker=broker)
    _print_changes(out, broker, await admin.add_write_permission(broker))


def _print_changes(out: Output, broker: str, counts: dict[str, int]) -> None:
    rows = [{"namesrv": address, "broker": broker, "topics_changed": count} for address, count in counts.items()]
    out.rows(rows, ["namesrv", "broker", "topics_changed"])


@admin_command("replication")
@broker_argument
async def show_replication(admin: Admin, out: Output, broker: str) -> None:
    """Show the replication progress of a master's slaves."""
    status = await admin.replication_status(await address_of(admin, broker))
    if not out.for_people:
        out.record({"broker": broker} | asdict(status))
        return
    out.record(
        {"master": status.master, "log_end": status.master_commit_log_max_offset, "in_sync_slaves": status.in_sync_slave_nums}
    )
    if status.ha_connection_info:
        out.rows(
            [asdict(one) for one in status.ha_connection_info],
            ["addr", "slave_ack_offset", "diff", "in_sync", "transferred_byte_in_second"],
        )
