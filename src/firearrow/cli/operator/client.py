"""`firearrow client`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.cli.arguments import GROUP
from firearrow.cli.command import Group, at_most_one
from firearrow.cli.terminal import Output

# Version numbers: 20 per minor version, 2 per patch, and the snapshot one below its release.
_V4_0_0, _V5_0_0, _HIGHER = 213, 413, 612


client = Group("client")


@client.admin_command("list")
@click.option("--group", type=GROUP, help="Only clients of this group.")
@click.option("--consumers", is_flag=True, help="Only consumers.")
@click.option("--producers", is_flag=True, help="Only producers.")
async def list_clients(admin: Admin, out: Output, group: str | None, consumers: bool, producers: bool) -> None:
    """List connected consumers and producers."""
    at_most_one(consumers=consumers, producers=producers)
    rows: list[dict[str, Any]] = []
    if not producers:
        for name in [group] if group else await admin.group_names():
            try:
                connection = await admin.consumer_connection(name)
            except NotFoundError:
                continue
            rows += [
                {
                    "kind": "consumer", "group": name, "client_id": one.client_id, "address": one.client_addr,
                    "language": one.language, "version": version_name(one.version),
                }
                for one in connection.connection_set
            ]  # fmt: skip
    if not consumers:
        connected = {(one.group, one.client_id): one for one in await admin.list_producers()}
        rows += [
            {
                "kind": "producer", "group": one.group, "client_id": one.client_id, "address": one.address,
                "language": one.language, "version": version_name(one.version),
            }
            for one in connected.values()
            if group in (None, one.group)
        ]  # fmt: skip
    out.rows(rows, ["kind", "group", "client_id", "address", "language", "version"])


@client.admin_command("show", epilog="Example: firearrow client show billing 10.0.0.7@4711#1 --stack")
@click.argument("group", type=GROUP)
@click.argument("client_id", metavar="CLIENT")
@click.option("--stack", is_flag=True, help="Include the stacks of its threads.")
async def show(admin: Admin, out: Output, group: str, client_id: str, stack: bool) -> None:
    """Show the state that a consumer reports."""
    info = await admin.running_info(group, client_id, stack=stack)
    queues = [
        {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id} | state
        for queue, state in sorted(info.mq_table.items(), key=lambda pair: (pair[0].topic, pair[0].broker_name, pair[0].queue_id))
    ]
    subscriptions = [asdict(one) for one in info.subscription_set]
    if not out.for_people:
        out.record({
            "group": group, "client_id": client_id, "properties": info.properties, "subscriptions": subscriptions,
            "queues": queues, "status": info.status_table, "stack": info.jstack,
        })  # fmt: skip
        return
    out.record(info.properties)
    out.text("")
    out.rows(subscriptions, ["topic", "sub_string", "expression_type"])
    out.text("")
    out.rows(queues, ["topic", "broker", "queue_id", "commitOffset", "cachedMsgCount", "cachedMsgSizeInMiB", "locked"])
    out.text("")
    out.rows(
        [{"topic": topic} | status for topic, status in sorted(info.status_table.items())],
        ["topic", "pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS", "consumeFailedMsgs"],
    )
    if info.jstack:
        out.paragraph(info.jstack)


def version_name(version: int) -> str:
    """Return `V5_5_0`. Versions before 4.0, whose numbers follow no rule, are returned as numbers."""
    base = _V5_0_0 if version >= _V5_0_0 - 1 else _V4_0_0
    if version < _V4_0_0 or version >= _HIGHER:
        return str(version) if version < _V4_0_0 else "HIGHER_VERSION"
    minor, patch = divmod((version - base + 1) // 2, 10)
    return f"V{5 if base == _V5_0_0 else 4}_{minor}_{patch}" + ("_SNAPSHOT" if (version - base) % 2 else "")
