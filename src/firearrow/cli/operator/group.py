"""`firearrow group`."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any

import click

from firearrow.admin.aio import Admin
from firearrow.cli.arguments import BROKER, CLUSTER, COUNT, DURATION, GROUP, NUMBER, TOPIC
from firearrow.cli.command import Group, options
from firearrow.cli.operator.client import version_name
from firearrow.cli.terminal import Output
from firearrow.wire.bodies.topic import SubscriptionGroupConfig

group = Group("group")


group_argument = click.argument("group", type=GROUP)

settings_options = options(
    click.option("--retries", metavar="N", type=NUMBER, help="Redeliveries before a message is a dead letter.  [broker: 16]"),
    click.option("--retry-queues", metavar="N", type=COUNT, help="Queues of the retry topic.  [broker: 1]"),
    click.option("--consume", metavar="yes|no", type=bool, help="Whether the group may consume.  [broker: yes]"),
    click.option("--broadcast", metavar="yes|no", type=bool, help="Whether broadcasting is allowed.  [broker: yes]"),
    click.option("--orderly", metavar="yes|no", type=bool, help="Whether retries keep the order.  [broker: no]"),
    click.option("--consume-timeout", type=DURATION, help="Whole minutes.  [broker: 15m]"),
)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    timeout: timedelta | None = given["consume_timeout"]
    if timeout is not None and timeout % timedelta(minutes=1):
        raise click.UsageError("--consume-timeout has a resolution of one minute; expected a value such as 15m")
    settings = {
        "retry_max_times": given["retries"],
        "retry_queue_nums": given["retry_queues"],
        "consume_enable": given["consume"],
        "consume_broadcast_enable": given["broadcast"],
        "consume_message_orderly": given["orderly"],
        "consume_timeout_minute": None if timeout is None else timeout // timedelta(minutes=1),
    }
    return {name: value for name, value in settings.items() if value is not None}


@group.admin_command("list")
@click.option("--like", metavar="TEXT", default="", help="Only groups whose name contains this text, ignoring case.")
@click.option("--behind", metavar="N", type=COUNT, help="Only groups with a lag of at least N messages.")
@click.option("--all", "all_kinds", is_flag=True, help="Include system groups.")
async def list_groups(admin: Admin, out: Output, like: str, behind: int | None, all_kinds: bool) -> None:
    """List groups with their members and lag."""
    groups = [one for one in await admin.list_groups(system=all_kinds) if like.lower() in one.group.lower()]
    rows = (asdict(one) for one in groups if behind is None or one.lag >= behind)
    out.rows(rows, ["group", "members", "lag", "consume_type", "message_model", "topics", "brokers"])


@group.admin_command("show")
@group_argument
async def show(admin: Admin, out: Output, group: str) -> None:
    """Show the configuration of a group on each broker."""
    configs = await admin.group_configs(group)
    rows = [{"group": group, "broker": broker} | asdict(config) for broker, config in sorted(configs.items())]
    if out.for_people:
        names = [one.name for one in fields(SubscriptionGroupConfig)]
        rows = [{"setting": name} | {row["broker"]: row[name] for row in rows} for name in names]
    out.rows(rows, list(rows[0]))


@group.admin_command("create", epilog="Example: firearrow group create billing --retries 5")
@group_argument
@settings_options
@click.option("--cluster", type=CLUSTER, help="Only on brokers of this cluster.  [default: all]")
@click.option("--broker", type=BROKER, help="Only on this broker.")
async def create(admin: Admin, out: Output, group: str, cluster: str | None, broker: str | None, **settings: Any) -> None:
    """Create a group."""
    brokers = await admin.create_group(group, _settings(settings), cluster=cluster, broker=broker)
    out.done(f"created {group} on {', '.join(brokers)}", group=group, brokers=brokers)


@group.admin_command("alter", epilog="Example: firearrow group alter billing --consume no")
@group_argument
@settings_options
@click.option("--broker", type=BROKER, help="Only on this broker.")
async def alter(admin: Admin, out: Output, group: str, broker: str | None, **settings: Any) -> None:
    """Change a group. Options that are not given keep their values."""
    changes = _settings(settings)
    if not changes:
        raise click.UsageError(
            "nothing to change; expected --retries, --retry-queues, --consume, --broadcast, --orderly or --consume-timeout"
        )
    brokers = await admin.alter_group(group, changes, broker=broker)
    out.done(f"changed {group} on {', '.join(brokers)}", group=group, brokers=brokers)


@group.admin_command("delete", destructive=True)
@click.argument("groups", metavar="GROUP...", type=GROUP, nargs=-1, required=True)
@click.option("--keep-offsets", is_flag=True, help="Keep the offsets, so that the group continues if it is created again.")
async def delete(admin: Admin, out: Output, groups: tuple[str, ...], keep_offsets: bool) -> None:
    """Delete groups and their offsets."""
    for group in groups:
        await admin.group_configs(group)  # fails if the group does not exist
    what = "group" if len(groups) == 1 else "groups"
    if not out.confirmed(f"delete the {what} {', '.join(groups)}{'' if keep_offsets else ' with offsets'}"):
        return
    for group in groups:
        brokers = await admin.delete_group(group, keep_offsets=keep_offsets)
        out.done(f"deleted {group} from {', '.join(brokers)}", group=group, brokers=brokers)


async def print_progress(admin: Admin, out: Output, group: str, topic: str | None, members: bool) -> None:
    """Print the progress of a group in each queue, and its total lag."""
    await admin.group_configs(group)
    queues = await admin.group_progress(group, topic=topic, members=members)
    rows = [{"group": group} | asdict(one) | {"lag": one.lag, "in_flight": one.in_flight} for one in queues]
    columns = ["topic", "broker", "queue_id", "broker_offset", "consumer_offset", "lag", "in_flight", "last_consumed_ms"]
    out.rows(rows, [*columns, *(["client_id"] if members else [])])
    if rows:
        out.text(f"lag {sum(one.lag for one in queues):,}, in flight {sum(one.in_flight for one in queues):,}")


progress_options = options(
    group_argument,
    click.option("--topic", type=TOPIC, help="Only this topic."),
    click.option("--members", is_flag=True, help="Ask the members which queues they consume."),
)


@group.admin_command("progress")
@progress_options
async def progress(admin: Admin, out: Output, group: str, topic: str | None, members: bool) -> None:
    """Show the offsets and the lag of a group in each queue."""
    await print_progress(admin, out, group, topic, members)


@group.admin_command("members")
@group_argument
async def members(admin: Admin, out: Output, group: str) -> None:
    """List the connected members of a group and their subscriptions."""
    connection = await admin.consumer_connection(group)
    subscriptions = {topic: one.sub_string for topic, one in sorted(connection.subscription_table.items())}
    rows = [
        {
            "group": group, "client_id": one.client_id, "address": one.client_addr, "language": one.language,
            "version": version_name(one.version), "consume_type": connection.consume_type,
            "message_model": connection.message_model, "consume_from": connection.consume_from_where,
            "subscriptions": subscriptions,
        }
        for one in connection.connection_set
    ]  # fmt: skip
    out.rows(rows, ["client_id", "address", "language", "version", "consume_type", "message_model"])
    for topic, expression in subscriptions.items():
        out.text(f"subscribes to {topic}: {expression}")
