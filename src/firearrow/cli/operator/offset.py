"""`firearrow offset`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from firearrow.admin.aio import Admin
from firearrow.admin.offsets import OffsetChange
from firearrow.cli.arguments import GROUP, LATEST, POSITION, Position
from firearrow.cli.command import Group
from firearrow.cli.operator.group import group_argument, print_progress, progress_options
from firearrow.cli.operator.message import queue_options, topic_argument
from firearrow.cli.terminal import Output, plural

COLUMNS = ["topic", "broker", "queue_id", "before", "after", "skipped", "redelivered", "min_offset", "max_offset"]


offset = Group("offset")


@offset.admin_command("show")
@progress_options
async def show(admin: Admin, out: Output, group: str, topic: str | None, members: bool) -> None:
    """Show the offsets and the lag of a group in each queue."""
    await print_progress(admin, out, group, topic, members)


@offset.admin_command("reset", epilog="Example: firearrow offset reset billing Orders --to 2h", destructive=True)
@group_argument
@topic_argument
@click.option("--to", "position", type=POSITION, required=True, help="earliest, latest, a time, an age (2h), or an offset.")
@queue_options
async def reset(
    admin: Admin, out: Output, group: str, topic: str, position: Position, broker: str | None, queue_id: int | None
) -> None:
    """Move a group to another position of a topic."""
    if isinstance(position, int) and queue_id is None:
        raise click.UsageError(f"offset {position} belongs to one queue; expected --queue, and --broker if there are several")
    await _reset(admin, out, group, topic, position, broker, queue_id)


@offset.admin_command("skip", destructive=True)
@group_argument
@topic_argument
async def skip(admin: Admin, out: Output, group: str, topic: str) -> None:
    """Skip all messages of a topic that a group has not consumed."""
    await _reset(admin, out, group, topic, LATEST, None, None)


@offset.admin_command("clone", destructive=True)
@click.argument("source", metavar="FROM", type=GROUP)
@click.argument("destination", metavar="TO", type=GROUP)
@topic_argument
async def clone(admin: Admin, out: Output, source: str, destination: str, topic: str) -> None:
    """Give the group TO the offsets of the group FROM. No member of TO may be connected."""
    for group in (source, destination):
        await admin.group_configs(group)  # fails if the group does not exist
    if out.confirmed(f"give {destination} the offsets of {source} in {topic}"):
        await admin.clone_offsets(source, destination, topic)
        out.done(
            f"{destination} has the offsets of {source} in {topic}", source=source, target=destination, topic=topic
        )  # fmt: skip


async def _reset(
    admin: Admin, out: Output, group: str, topic: str, to: Position, broker: str | None, queue_id: int | None
) -> None:  # fmt: skip
    plan = await admin.plan_reset(group, topic, to, broker=broker, queue_id=queue_id)
    if out.confirmed(describe_reset(group, topic, plan)):
        plan = await admin.reset_offset(group, topic, to, broker=broker, queue_id=queue_id)
    out.rows([_row(group, change) for change in plan], COLUMNS)


def describe_reset(group: str, topic: str, plan: Sequence[OffsetChange]) -> str:
    """Return the effect of a reset, such as `move billing in 4 queues of Orders, skipping 12 messages`."""
    skipped = sum(max(change.skipped, 0) for change in plan)
    again = sum(max(-change.skipped, 0) for change in plan)
    effects = [f"skipping {plural(skipped, 'message')}"] if skipped else []
    effects += [f"redelivering {plural(again, 'message')}"] if again else []
    return f"move {group} in {plural(len(plan), 'queue')} of {topic}, {' and '.join(effects) or 'which changes nothing'}"


def _row(group: str, change: OffsetChange) -> dict[str, Any]:
    return {
        "group": group, "topic": change.queue.topic, "broker": change.queue.broker_name, "queue_id": change.queue.queue_id,
        "before": change.before, "after": change.after, "skipped": max(change.skipped, 0),
        "redelivered": max(-change.skipped, 0), "min_offset": change.min_offset, "max_offset": change.max_offset,
    }  # fmt: skip
