"""`firearrow client ...`"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.cli.arguments import CommandGroup
from firearrow.cli.terminal import Output

# 20 for each minor version, 2 for each patch, and one below each release its snapshot
_V4_0_0, _V5_0_0, _HIGHER = 213, 413, 612


def add(verbs: CommandGroup) -> None:
    listing = verbs.add("list", list_, "list connected consumers and producers")
    listing.add_argument("--group", help="of this group only")
    kind = listing.add_mutually_exclusive_group()
    kind.add_argument("--consumers", action="store_true", help="only consumers")
    kind.add_argument("--producers", action="store_true", help="only producers")

    show = verbs.add(
        "show", show_, "show what a consumer says about itself", example="client show billing 10.0.0.7@4711#1 --stack"
    )
    show.add_argument("group", metavar="GROUP")
    show.add_argument("client_id", metavar="CLIENT")
    show.add_argument("--stack", action="store_true", help="also what its threads are doing")


async def list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    rows: list[dict[str, Any]] = []
    if not options.producers:
        for group in [options.group] if options.group else await admin.group_names():
            try:
                connection = await admin.consumer_connection(group)
            except NotFoundError:
                continue
            rows += [
                {
                    "kind": "consumer", "group": group, "client_id": one.client_id, "address": one.client_addr,
                    "language": one.language, "version": version_name(one.version),
                }
                for one in connection.connection_set
            ]  # fmt: skip
    if not options.consumers:
        producers = {(one.group, one.client_id): one for one in await admin.list_producers()}
        rows += [
            {
                "kind": "producer", "group": one.group, "client_id": one.client_id, "address": one.address,
                "language": one.language, "version": version_name(one.version),
            }
            for one in producers.values()
            if options.group in (None, one.group)
        ]  # fmt: skip
    out.rows(rows, ["kind", "group", "client_id", "address", "language", "version"])


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    info = await admin.running_info(options.group, options.client_id, stack=options.stack)
    queues = [
        {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id} | state
        for queue, state in sorted(info.mq_table.items(), key=lambda pair: (pair[0].topic, pair[0].broker_name, pair[0].queue_id))
    ]
    subscriptions = [asdict(one) for one in info.subscription_set]
    if out.form != "table":
        out.record(
            {
                "properties": info.properties,
                "subscriptions": subscriptions,
                "queues": queues,
                "status": info.status_table,
                "stack": info.jstack,
            }
        )
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
        out.text(f"\n{info.jstack}")


def version_name(version: int) -> str:
    """`V5_5_0`; what is older than 4.0, whose numbers follow no rule, by its number."""
    base = _V5_0_0 if version >= _V5_0_0 - 1 else _V4_0_0
    if version < _V4_0_0 or version >= _HIGHER:
        return str(version) if version < _V4_0_0 else "HIGHER_VERSION"
    minor, patch = divmod((version - base + 1) // 2, 10)
    return f"V{5 if base == _V5_0_0 else 4}_{minor}_{patch}" + ("_SNAPSHOT" if (version - base) % 2 else "")
