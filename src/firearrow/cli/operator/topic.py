"""`firearrow topic ...`"""

from __future__ import annotations

import argparse

from firearrow.admin.aio import Admin
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.name_servers import format_order, parse_order
from firearrow.admin.topics import perm_text
from firearrow.cli.arguments import CommandGroup, UsageError, count, pair, permission, truth
from firearrow.cli.asking import confirmed
from firearrow.cli.terminal import Output, as_row


def add(verbs: CommandGroup) -> None:
    listing = verbs.add("list", list_, "list topics with their queues and permissions", example="topic list --like order")
    listing.add_argument("--cluster", help="of this cluster")
    listing.add_argument("--like", metavar="TEXT", help="whose name contains this, in any case")
    listing.add_argument("--all", action="store_true", help="also retry, dead letter and system topics")

    show = verbs.add("show", show_, "show a topic as each broker has it")
    show.add_argument("topic", metavar="TOPIC")

    create = verbs.add("create", create_, "make a topic", example="topic create Orders --queues 4 --type FIFO")
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument("--queues", metavar="N", type=count, default=8, help="on each broker (default: %(default)s)")
    create.add_argument("--perm", type=permission, default=6, help="r, w, rw or none (default: rw)")
    create.add_argument("--order", action="store_true", help="an ordered topic")
    create.add_argument("--type", choices=("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"), help="kind of messages")
    create.add_argument("--cluster", help="on the brokers of this cluster (default: of all)")
    create.add_argument("--broker", help="on this broker only")

    alter = verbs.add("alter", alter_, "change a topic; what is not given stays", example="topic alter Orders --perm r")
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("--read-queues", metavar="N", type=count, help="on each broker")
    alter.add_argument("--write-queues", metavar="N", type=count, help="on each broker")
    alter.add_argument("--perm", type=permission, help="r, w, rw or none")
    alter.add_argument("--order", type=truth, metavar="yes|no", help="whether it is an ordered topic")
    alter.add_argument(
        "--attribute", metavar="NAME=VALUE", action="append", type=pair, default=[], help="an empty value takes it away"
    )
    alter.add_argument("--broker", help="on this broker only")

    delete = verbs.add("delete", delete_, "delete topics with their messages and offsets", destroys=True)
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.add_argument("--cluster", help="on the brokers of this cluster (default: of all)")

    status = verbs.add("status", status_, "show what is in each queue")
    status.add_argument("topic", metavar="TOPIC")

    route = verbs.add("route", route_, "show what name servers tell clients")
    route.add_argument("topic", metavar="TOPIC")

    order = verbs.add(
        "order",
        order_,
        "show, fix or free the queues of an ordered topic (order configuration)",
        destroys=True,
        example="topic order Orders --set broker-a:4;broker-b:4",
    )
    order.add_argument("topic", metavar="TOPIC")
    change = order.add_mutually_exclusive_group()
    change.add_argument(
        "--set", dest="queues", metavar="BROKER:N;...", type=_order, help="producers use these queues, and only these"
    )
    change.add_argument("--delete", action="store_true", help="producers use the queues that there are")

    groups = verbs.add("groups", groups_, "list the groups that consume a topic or did")
    groups.add_argument("topic", metavar="TOPIC")


async def list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    topics = await admin.list_topics(cluster=options.cluster)
    like = (options.like or "").lower()
    wanted = [one for one in topics if (options.all or one.kind == "normal") and like in one.topic.lower()]
    columns = ["topic", *(["kind"] if options.all else []), "read_queues", "write_queues", "perm", "message_type", "brokers"]
    out.rows((as_row(one) for one in wanted), columns)


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    configs = await admin.topic_configs(options.topic)
    rows = [
        {
            "topic": one.topic_name, "broker": broker, "read_queues": one.read_queue_nums, "write_queues": one.write_queue_nums,
            "perm": perm_text(one.perm), "order": one.order, "attributes": one.attributes,
        }
        for broker, one in sorted(configs.items())
    ]  # fmt: skip
    out.rows(rows, ["broker", "read_queues", "write_queues", "perm", "order", "attributes"])


async def create_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    brokers = await admin.create_topic(
        options.topic,
        queues=options.queues,
        perm=options.perm,
        order=options.order,
        attributes={"message.type": options.type} if options.type else None,
        cluster=options.cluster,
        broker=options.broker,
    )
    sentence = f"made {options.topic} with {options.queues} queues on {', '.join(brokers)}"
    out.done(sentence, topic=options.topic, queues=options.queues, brokers=brokers)


async def alter_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    changes = {
        "read_queues": options.read_queues,
        "write_queues": options.write_queues,
        "perm": options.perm,
        "order": options.order,
    }
    if all(value is None for value in changes.values()) and not options.attribute:
        raise UsageError("nothing to change; expected --read-queues, --write-queues, --perm, --order or --attribute")
    attributes = {name: value or None for name, value in options.attribute}
    brokers = await admin.alter_topic(options.topic, **changes, attributes=attributes, broker=options.broker)
    out.done(f"changed {options.topic} on {', '.join(brokers)}", topic=options.topic, brokers=brokers)


async def delete_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    sizes = {topic: sum(queue.messages for queue in await admin.topic_status(topic)) for topic in options.topics}
    told = ", ".join(f"{topic} ({messages:,} messages)" for topic, messages in sizes.items())
    if not confirmed(options, f"delete {told}"):
        return
    for topic in options.topics:
        brokers = await admin.delete_topic(topic, cluster=options.cluster)
        out.done(f"deleted {topic} from {', '.join(brokers)}", topic=topic, brokers=brokers)


async def status_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    rows = [as_row(one) | {"messages": one.messages} for one in await admin.topic_status(options.topic)]
    out.rows(rows, ["broker", "queue_id", "min_offset", "max_offset", "messages", "last_stored_ms"])


async def route_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    route = await admin.topic_route(options.topic)
    counts = {one.broker_name: one for one in route.queue_counts}
    rows = [
        {
            "cluster": route.clusters.get(name), "broker": name, "broker_id": broker_id, "address": address,
            "read_queues": counts[name].read, "write_queues": counts[name].write, "perm": perm_text(counts[name].perm),
        }
        for name, addresses in sorted(route.brokers.items())
        for broker_id, address in addresses.items()
        if name in counts
    ]  # fmt: skip
    out.rows(rows, ["cluster", "broker", "broker_id", "address", "read_queues", "write_queues", "perm"])


async def order_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    topic, queues = options.topic, options.queues
    known = await admin.order_config(topic)
    if queues is not None:
        if confirmed(options, f"fix the queues of {topic} to {format_order(queues)} at all name servers"):
            await admin.set_order_config(topic, queues)
            out.done(f"fixed the queues of {topic} to {format_order(queues)}", topic=topic, queues=queues)
    elif options.delete:
        if known is None:
            raise NotFoundError(f"{topic!r} has no order configuration")
        if confirmed(options, f"free the queues of {topic}, now {format_order(known)}, at all name servers"):
            await admin.delete_order_config(topic)
            out.done(f"freed the queues of {topic}", topic=topic)
    else:
        out.rows([{"broker": broker, "queues": count} for broker, count in (known or {}).items()], ["broker", "queues"])


def _order(text: str) -> dict[str, int]:
    try:
        queues = parse_order(text)
    except AdminError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not queues:
        raise argparse.ArgumentTypeError("it is empty; expected broker:queues, joined by semicolons")
    return queues


async def groups_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    out.rows([{"group": group} for group in await admin.topic_groups(options.topic)], ["group"])
