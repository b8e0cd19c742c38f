"""`firearrow broker list ...`; without such a verb, `firearrow broker` starts one."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.admin.brokers import STATISTICS, decimal
from firearrow.admin.cluster import BrokerAddress
from firearrow.cli.arguments import CommandGroup
from firearrow.cli.asking import confirmed
from firearrow.cli.terminal import Output
from firearrow.client.errors import FirearrowError

WHAT = ("queues", "topics", "log")


def add(verbs: CommandGroup) -> None:
    listing = verbs.add("list", list_, "list brokers with their rates and disks")
    listing.add_argument("--cluster", help="of this cluster")

    status = verbs.add("status", status_, "show everything that a broker says about itself")
    status.add_argument("broker", metavar="BROKER", help="name or address")

    stats = verbs.add(
        "stats", stats_, "show counts of the last minute, hour and day", example="broker stats broker-a TOPIC_PUT_NUMS Orders"
    )
    stats.add_argument("broker", metavar="BROKER", help="name or address")
    stats.add_argument("name", metavar="NAME", help=f"such as {', '.join(STATISTICS)}")
    stats.add_argument("key", metavar="KEY", help="a topic, topic@group, or the cluster")

    clean = verbs.add("clean", clean_, "delete what is not needed any more", destroys=True)
    clean.add_argument("broker", metavar="BROKER", help="name or address")
    clean.add_argument(
        "what",
        choices=WHAT,
        help="queues: queue files whose messages are gone; topics: those of topics that are gone; log: expired files",
    )

    wipe = verbs.add("wipe", wipe_, "tell clients not to send to a broker any more", destroys=True)
    wipe.add_argument("broker", metavar="BROKER", help="name")

    allow = verbs.add("allow", allow_, "tell clients that they may send to a broker again")
    allow.add_argument("broker", metavar="BROKER", help="name")

    replication = verbs.add("replication", replication_, "show how far the slaves of a master are")
    replication.add_argument("broker", metavar="BROKER", help="name or address")


async def list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    out.rows([await summary(admin, one) for one in await admin.list_brokers(cluster=options.cluster)], COLUMNS)


COLUMNS = ["cluster", "broker", "broker_id", "address", "version", "put_tps", "get_tps", "put_today", "disk_percent", "problem"]


async def summary(admin: Admin, broker: BrokerAddress) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cluster": broker.cluster,
        "broker": broker.name,
        "broker_id": broker.broker_id,
        "address": broker.address,
    }
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
    """Of the master, if a name was given."""
    brokers = await admin.list_brokers(broker=name)
    return min(brokers, key=lambda one: one.broker_id).address


async def status_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    out.record(dict(sorted((await admin.broker_status(await address_of(admin, options.broker))).items())))


async def stats_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    found = await admin.broker_statistics(await address_of(admin, options.broker), options.name, options.key)
    spans = [] if found is None else [("minute", found.stats_minute), ("hour", found.stats_hour), ("day", found.stats_day)]
    out.rows([{"span": span} | asdict(item) for span, item in spans], ["span", "sum", "tps", "avgpt"])


async def clean_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    address = await address_of(admin, options.broker)
    ways = {"queues": admin.clean_expired_queues, "topics": admin.clean_unused_topics, "log": admin.delete_expired_log}
    if not confirmed(options, f"clean {options.what} of {options.broker}"):
        return
    await ways[options.what](address)
    out.done(f"cleaned {options.what} of {options.broker}", broker=options.broker, what=options.what)


async def wipe_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    await admin.list_brokers(broker=options.broker)
    if not confirmed(options, f"take the permission to write from {options.broker}"):
        return
    _changed(out, options.broker, await admin.wipe_write_permission(options.broker))


async def allow_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    await admin.list_brokers(broker=options.broker)
    _changed(out, options.broker, await admin.add_write_permission(options.broker))


def _changed(out: Output, broker: str, counts: dict[str, int]) -> None:
    out.rows(
        [{"name_server": address, "broker": broker, "topics_changed": count} for address, count in counts.items()],
        ["name_server", "broker", "topics_changed"],
    )


async def replication_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    status = await admin.replication_status(await address_of(admin, options.broker))
    if out.form != "table":
        out.record(asdict(status))
        return
    out.record(
        {"master": status.master, "log_end": status.master_commit_log_max_offset, "in_sync_slaves": status.in_sync_slave_nums}
    )
    if status.ha_connection_info:
        out.rows(
            [asdict(one) for one in status.ha_connection_info],
            ["addr", "slave_ack_offset", "diff", "in_sync", "transferred_byte_in_second"],
        )
