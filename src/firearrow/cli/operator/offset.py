"""`firearrow offset ...`"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.admin.offsets import OffsetChange
from firearrow.cli.arguments import CommandGroup, UsageError, number, place
from firearrow.cli.asking import confirmed
from firearrow.cli.operator.group import progress_
from firearrow.cli.terminal import Output

COLUMNS = ["topic", "broker", "queue_id", "before", "after", "skipped", "min_offset", "max_offset"]


def add(verbs: CommandGroup) -> None:
    show = verbs.add("show", progress_, "show where a group is in each queue")
    show.add_argument("group", metavar="GROUP")
    show.add_argument("--topic", help="in this topic only")
    show.add_argument("--members", action="store_true", help="ask the members who has which queue")

    reset = verbs.add(
        "reset", reset_, "move a group to another place of a topic", destroys=True, example="offset reset billing Orders --to 2h"
    )
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("topic", metavar="TOPIC")
    reset.add_argument(
        "--to",
        metavar="PLACE",
        type=place,
        required=True,
        help="begin, end, an offset, a time (2030-01-31T12:00:00), an age (10m)",
    )
    reset.add_argument("--broker", help="only queues of this broker")
    reset.add_argument("--queue", dest="queue_id", metavar="N", type=number, help="only this queue")

    skip = verbs.add("skip", reset_, "skip all messages that wait for a group in a topic", destroys=True)
    skip.add_argument("group", metavar="GROUP")
    skip.add_argument("topic", metavar="TOPIC")
    skip.set_defaults(to="end", broker=None, queue_id=None)

    clone = verbs.add("clone", clone_, "give a group the offsets of another one", destroys=True)
    clone.add_argument("source", metavar="FROM", help="the group to copy from")
    clone.add_argument("target", metavar="TO", help="the group that gets the offsets; none of its members may be connected")
    clone.add_argument("topic", metavar="TOPIC")


async def reset_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    where = {"broker": options.broker, "queue_id": options.queue_id}
    if isinstance(options.to, int) and options.queue_id is None:
        raise UsageError(f"the offset {options.to} is of one queue; expected --queue, and --broker if there are several")
    plan = await admin.plan_reset(options.group, options.topic, options.to, **where)
    if not confirmed(options, told(options.group, options.topic, plan)):
        out.rows(rows(plan), COLUMNS)
        return
    out.rows(rows(await admin.reset_offset(options.group, options.topic, options.to, **where)), COLUMNS)


async def clone_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    for group in (options.source, options.target):
        await admin.group_configs(group)
    if not confirmed(options, f"give {options.target} the offsets of {options.source} in {options.topic}"):
        return
    await admin.clone_offsets(options.source, options.target, options.topic)
    sentence = f"{options.target} is where {options.source} is in {options.topic}"
    out.done(sentence, source=options.source, target=options.target, topic=options.topic)


def told(group: str, topic: str, plan: Sequence[OffsetChange]) -> str:
    """What a reset means for the group."""
    skipped = sum(max(change.skipped, 0) for change in plan)
    again = sum(max(-change.skipped, 0) for change in plan)
    parts = [f"skip {skipped:,} messages" if skipped else "", f"deliver {again:,} messages again" if again else ""]
    return f"move {group} in {len(plan)} queues of {topic}: " + (" and ".join(part for part in parts if part) or "to where it is")


def rows(plan: Sequence[OffsetChange]) -> list[dict[str, Any]]:
    return [
        {
            "topic": change.queue.topic, "broker": change.queue.broker_name, "queue_id": change.queue.queue_id,
            "before": change.before, "after": change.after, "skipped": change.skipped, "min_offset": change.min_offset,
            "max_offset": change.max_offset,
        }
        for change in plan
    ]  # fmt: skip
