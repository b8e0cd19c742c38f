"""`firearrow topic`."""

from __future__ import annotations

from typing import Any

import click

from firearrow.admin.aio import Admin
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.name_servers import format_order, parse_order
from firearrow.admin.topics import PERMISSIONS, perm_text
from firearrow.cli.arguments import BROKER, CLUSTER, COUNT, PAIR, TOPIC
from firearrow.cli.command import Group, at_most_one
from firearrow.cli.terminal import Output, as_row, plural
from firearrow.wire.names import proxied_broker

MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


topic = Group("topic")


topic_argument = click.argument("topic", type=TOPIC)


@topic.admin_command("list", epilog="Example: firearrow topic list --like order")
@click.option("--cluster", type=CLUSTER, help="Only topics of this cluster.")
@click.option("--like", metavar="TEXT", default="", help="Only topics whose name contains this text, ignoring case.")
@click.option("--all", "all_kinds", is_flag=True, help="Include retry, dead letter and system topics.")
async def list_topics(admin: Admin, out: Output, cluster: str | None, like: str, all_kinds: bool) -> None:
    """List topics with their queues and permissions."""
    topics = await admin.list_topics(cluster=cluster)
    wanted = [one for one in topics if (all_kinds or one.kind == "normal") and like.lower() in one.topic.lower()]
    columns = ["topic", *(["kind"] if all_kinds else []), "read_queues", "write_queues", "perm", "message_type", "brokers"]
    out.rows((as_row(one) for one in wanted), columns)


@topic.admin_command("show")
@topic_argument
async def show(admin: Admin, out: Output, topic: str) -> None:
    """Show the configuration of a topic on each broker."""
    rows = [
        {
            "topic": one.topic_name, "broker": broker, "read_queues": one.read_queue_nums, "write_queues": one.write_queue_nums,
            "perm": perm_text(one.perm), "order": one.order, "attributes": one.attributes,
        }
        for broker, one in sorted((await admin.topic_configs(topic)).items())
    ]  # fmt: skip
    out.rows(rows, ["broker", "read_queues", "write_queues", "perm", "order", "attributes"])


@topic.admin_command("create", epilog="Example: firearrow topic create Orders --queues 4 --type FIFO")
@topic_argument
@click.option("--queues", metavar="N", type=COUNT, default=8, show_default=True, help="Queues on each broker.")
@click.option("--perm", type=click.Choice(tuple(PERMISSIONS)), default="rw", show_default=True, help="Permission.")
@click.option("--order", is_flag=True, help="Create an ordered topic.")
@click.option("--type", "message_type", type=click.Choice(MESSAGE_TYPES), help="Type of its messages.")
@click.option("--cluster", type=CLUSTER, help="Only on brokers of this cluster.  [default: all]")
@click.option("--broker", type=BROKER, help="Only on this broker.")
async def create(
    admin: Admin, out: Output, topic: str, queues: int, perm: str, message_type: str | None, **options: Any
) -> None:  # fmt: skip
    """Create a topic."""
    attributes = {"message.type": message_type} if message_type else None
    brokers = await admin.create_topic(topic, queues=queues, perm=PERMISSIONS[perm], attributes=attributes, **options)
    out.done(
        f"created {topic} with {plural(queues, 'queue')} on {', '.join(brokers)}", topic=topic, queues=queues, brokers=brokers
    )


@topic.admin_command("alter", epilog="Example: firearrow topic alter Orders --perm r")
@topic_argument
@click.option("--read-queues", metavar="N", type=COUNT, help="Read queues on each broker.")
@click.option("--write-queues", metavar="N", type=COUNT, help="Write queues on each broker.")
@click.option("--perm", type=click.Choice(tuple(PERMISSIONS)), help="Permission.")
@click.option("--order", metavar="yes|no", type=bool, help="Whether the topic is ordered.")
@click.option("--attribute", metavar="NAME=VALUE", multiple=True, type=PAIR, help="An empty value removes it; repeatable.")
@click.option("--broker", type=BROKER, help="Only on this broker.")
async def alter(
    admin: Admin, out: Output, topic: str, perm: str | None, attribute: list[tuple[str, str]], broker: str | None, **values: Any
) -> None:
    """Change a topic. Options that are not given keep their values."""
    if not attribute and perm is None and all(value is None for value in values.values()):
        raise click.UsageError("nothing to change; expected --read-queues, --write-queues, --perm, --order or --attribute")
    values["perm"] = None if perm is None else PERMISSIONS[perm]
    attributes = {name: value or None for name, value in attribute}
    brokers = await admin.alter_topic(topic, attributes=attributes, broker=broker, **values)
    out.done(f"changed {topic} on {', '.join(brokers)}", topic=topic, brokers=brokers)


@topic.admin_command("delete", destructive=True)
@click.argument("topics", metavar="TOPIC...", type=TOPIC, nargs=-1, required=True)
@click.option("--cluster", type=CLUSTER, help="Only on brokers of this cluster.  [default: all]")
async def delete(admin: Admin, out: Output, topics: tuple[str, ...], cluster: str | None) -> None:
    """Delete topics with their messages and offsets."""
    sizes = {topic: sum(queue.messages for queue in await admin.topic_status(topic)) for topic in topics}
    if not out.confirmed("delete " + ", ".join(f"{topic} ({plural(count, 'message')})" for topic, count in sizes.items())):
        return
    for topic in topics:
        brokers = await admin.delete_topic(topic, cluster=cluster)
        out.done(f"deleted {topic} from {', '.join(brokers)}", topic=topic, brokers=brokers)


@topic.admin_command("status")
@topic_argument
async def status(admin: Admin, out: Output, topic: str) -> None:
    """Show the offsets and the number of messages of each queue."""
    rows = [{"topic": topic} | as_row(one) | {"messages": one.messages} for one in await admin.topic_status(topic)]
    out.rows(rows, ["broker", "queue_id", "min_offset", "max_offset", "messages", "last_stored_ms"])


@topic.admin_command("route")
@topic_argument
async def route(admin: Admin, out: Output, topic: str) -> None:
    """Show the route that name servers give to clients.

    Queues are shown once, at the broker with the lowest id. A follower of an elected group is also listed under a name of its own
    and forwards messages to its group.
    """
    found = await admin.topic_route(topic)
    counts = {one.broker_name: one for one in found.queue_counts}
    rows = []
    for name, addresses in sorted(found.brokers.items()):
        for broker_id, address in addresses.items():
            own = name in counts and broker_id == min(addresses) and proxied_broker(name) is None
            rows.append({
                "topic": topic, "cluster": found.clusters.get(name), "broker": name, "broker_id": broker_id, "address": address,
                "read_queues": counts[name].read if own else None, "write_queues": counts[name].write if own else None,
                "perm": perm_text(counts[name].perm) if own else None, "forwards_to": proxied_broker(name),
            })  # fmt: skip
    columns = ["cluster", "broker", "broker_id", "address", "read_queues", "write_queues", "perm"]
    out.rows(rows, [*columns, *(["forwards_to"] if any(row["forwards_to"] for row in rows) else [])])


def _parse_queues(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, int] | None:
    if value is None:
        return None
    try:
        queues = parse_order(value)
    except AdminError as error:
        raise click.BadParameter(str(error)) from None
    if not queues:
        raise click.BadParameter("it is empty; expected broker:queues, joined by semicolons")
    return queues


@topic.admin_command("order", epilog="Example: firearrow topic order Orders --set 'broker-a:4;broker-b:4'", destructive=True)
@topic_argument
@click.option("--set", "queues", metavar="BROKER:N;...", callback=_parse_queues, help="Fix the queues that producers use.")
@click.option("--delete", is_flag=True, help="Delete the order configuration.")
async def order(admin: Admin, out: Output, topic: str, queues: dict[str, int] | None, delete: bool) -> None:
    """Show, set or delete the order configuration: the queues of an ordered topic that producers use."""
    at_most_one(set=queues, delete=delete)
    known = await admin.order_config(topic)
    if queues is not None:
        if out.confirmed(f"fix the queues of {topic} to {format_order(queues)} on all name servers"):
            await admin.set_order_config(topic, queues)
            out.done(f"fixed the queues of {topic} to {format_order(queues)}", topic=topic, queues=queues)
    elif delete:
        if known is None:
            raise NotFoundError(f"topic {topic!r} has no order configuration")
        if out.confirmed(f"delete the order configuration of {topic}, {format_order(known)}, on all name servers"):
            await admin.delete_order_config(topic)
            out.done(f"deleted the order configuration of {topic}", topic=topic)
    else:
        out.rows([{"broker": broker, "queues": count} for broker, count in (known or {}).items()], ["broker", "queues"])


@topic.admin_command("groups")
@topic_argument
async def groups(admin: Admin, out: Output, topic: str) -> None:
    """List the groups that consume a topic or have an offset in it."""
    out.rows([{"group": group} for group in await admin.topic_groups(topic)], ["group"])
