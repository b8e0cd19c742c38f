"""`firearrow group ...`"""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.cli.arguments import CommandGroup, UsageError, count, number, truth
from firearrow.cli.asking import confirmed
from firearrow.cli.terminal import Output
from firearrow.wire.bodies.topic import SubscriptionGroupConfig


def add(verbs: CommandGroup) -> None:
    listing = verbs.add("list", list_, "list groups with their members and how many messages wait for them")
    listing.add_argument("--like", metavar="TEXT", help="whose name contains this, in any case")
    listing.add_argument("--behind", metavar="N", type=count, help="only those with at least so many messages waiting")
    listing.add_argument("--all", action="store_true", help="also groups of the system")

    show = verbs.add("show", show_, "show a group as each broker has it")
    show.add_argument("group", metavar="GROUP")

    create = verbs.add("create", create_, "make a group", example="group create billing --retries 5")
    create.add_argument("group", metavar="GROUP")
    _add_settings(create)
    create.add_argument("--cluster", help="on the brokers of this cluster (default: of all)")
    create.add_argument("--broker", help="on this broker only")

    alter = verbs.add("alter", alter_, "change a group; what is not given stays", example="group alter billing --consume no")
    alter.add_argument("group", metavar="GROUP")
    _add_settings(alter)
    alter.add_argument("--broker", help="on this broker only")

    delete = verbs.add("delete", delete_, "delete groups and their offsets", destroys=True)
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.add_argument("--keep-offsets", action="store_true", help="if the group is made again, it goes on where it was")

    progress = verbs.add("progress", progress_, "show how far a group is in each queue")
    progress.add_argument("group", metavar="GROUP")
    progress.add_argument("--topic", help="in this topic only")
    progress.add_argument("--members", action="store_true", help="ask the members who has which queue")

    members = verbs.add("members", members_, "list the connected members of a group and what they subscribe to")
    members.add_argument("group", metavar="GROUP")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--retries", metavar="N", type=number, help="deliveries again, before a message is a dead letter (16)")
    parser.add_argument("--retry-queues", metavar="N", type=count, help="queues of the retry topic (1)")
    parser.add_argument("--consume", metavar="yes|no", type=truth, help="whether it may consume (yes)")
    parser.add_argument("--broadcast", metavar="yes|no", type=truth, help="whether members may consume everything each (yes)")
    parser.add_argument("--orderly", metavar="yes|no", type=truth, help="whether retries keep the order (no)")
    parser.add_argument("--consume-timeout", metavar="MINUTES", type=count, help="(15)")


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "retry_max_times": options.retries,
        "retry_queue_nums": options.retry_queues,
        "consume_enable": options.consume,
        "consume_broadcast_enable": options.broadcast,
        "consume_message_orderly": options.orderly,
        "consume_timeout_minute": options.consume_timeout,
    }
    return {name: value for name, value in given.items() if value is not None}


async def list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    like = (options.like or "").lower()
    groups = [one for one in await admin.list_groups(system=options.all) if like in one.group.lower()]
    if options.behind is not None:
        groups = [one for one in groups if one.lag >= options.behind]
    rows = (asdict(one) for one in groups)
    out.rows(rows, ["group", "members", "lag", "consume_type", "message_model", "topics", "brokers"])


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    configs = await admin.group_configs(options.group)
    rows = [{"broker": broker} | asdict(config) for broker, config in sorted(configs.items())]
    if out.form == "table":
        shown = [one.name for one in fields(SubscriptionGroupConfig)]
        rows = [{"setting": name} | {row["broker"]: row[name] for row in rows} for name in shown]
        out.rows(rows, list(rows[0]))
    else:
        out.rows(rows, list(rows[0]))


async def create_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    brokers = await admin.create_group(options.group, _settings(options), cluster=options.cluster, broker=options.broker)
    out.done(f"made {options.group} on {', '.join(brokers)}", group=options.group, brokers=brokers)


async def alter_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    settings = _settings(options)
    if not settings:
        raise UsageError(
            "nothing to change; expected --retries, --retry-queues, --consume, --broadcast, --orderly or --consume-timeout"
        )
    brokers = await admin.alter_group(options.group, settings, broker=options.broker)
    out.done(f"changed {options.group} on {', '.join(brokers)}", group=options.group, brokers=brokers)


async def delete_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    for group in options.groups:
        await admin.group_configs(group)  # it is there
    what = "" if options.keep_offsets else " and their offsets"
    if not confirmed(options, f"delete the groups {', '.join(options.groups)}{what}"):
        return
    for group in options.groups:
        brokers = await admin.delete_group(group, keep_offsets=options.keep_offsets)
        out.done(f"deleted {group} from {', '.join(brokers)}", group=group, brokers=brokers)


async def progress_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    await admin.group_configs(options.group)
    queues = await admin.group_progress(options.group, topic=options.topic, members=options.members)
    rows = [asdict(one) | {"lag": one.lag, "in_flight": one.in_flight} for one in queues]
    columns = ["topic", "broker", "queue_id", "broker_offset", "consumer_offset", "lag", "in_flight", "last_consumed_ms"]
    out.rows(rows, [*columns, *(["client_id"] if options.members else [])])
    if rows:
        out.text(f"lag {sum(one.lag for one in queues):,}, in flight {sum(one.in_flight for one in queues):,}")


async def members_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    from firearrow.cli.operator.client import version_name

    connection = await admin.consumer_connection(options.group)
    subscriptions = {topic: one.sub_string for topic, one in sorted(connection.subscription_table.items())}
    rows = [
        {
            "client_id": one.client_id, "address": one.client_addr, "language": one.language,
            "version": version_name(one.version),
            "consume_type": connection.consume_type, "message_model": connection.message_model,
            "consume_from": connection.consume_from_where, "subscriptions": subscriptions,
        }
        for one in connection.connection_set
    ]  # fmt: skip
    out.rows(rows, ["client_id", "address", "language", "version", "consume_type", "message_model"])
    for topic, expression in subscriptions.items():
        out.text(f"subscribes to {topic}: {expression}")
