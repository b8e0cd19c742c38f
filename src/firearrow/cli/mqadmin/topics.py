"""`firearrow mqadmin`: topics."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import click

from firearrow.admin.aio import Admin
from firearrow.admin.cluster import BrokerAddress
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.name_servers import format_order, parse_order
from firearrow.cli.mqadmin.format import (
    attributes_of,
    bool_of,
    int_of,
    permission_text,
    print_lines,
    print_titles,
    targets_of,
    time_text,
)
from firearrow.escaping import escape_json
from firearrow.wire.bodies.route import BrokerData, QueueData, TopicRouteData


async def update_topic(admin: Admin, options: SimpleNamespace) -> None:
    read, write, perm = (int_of(options, name) for name in ("readQueueNums", "writeQueueNums", "perm"))
    order = bool_of(options, "order")
    attributes = attributes_of(options.attributes)
    for broker in await targets_of(admin, options):
        try:
            exists = broker.name in await admin.topic_configs(options.topic)
        except NotFoundError:
            exists = False
        put: Callable[..., Awaitable[object]] = admin.alter_topic if exists else admin.create_topic
        await put(
            options.topic,
            read_queues=read,
            write_queues=write,
            perm=perm,
            order=order,
            attributes=attributes if exists else {name: value for name, value in attributes.items() if value is not None},
            broker=broker.address,
        )
        print_lines(f"create topic to {broker.address} success.")
    print_lines(
        f"TopicConfig [topicName={options.topic}, readQueueNums={read}, writeQueueNums={write}, perm={permission_text(perm)}, "
        f"topicFilterType=SINGLE_TAG, topicSysFlag=0, order={str(order).lower()}, attributes={options.attributes or '{}'}]"
    )


async def delete_topic(admin: Admin, options: SimpleNamespace) -> None:
    if options.confirmed(f"delete the topic {options.topic}"):
        await admin.delete_topic(options.topic, cluster=options.clusterName)
        print_lines(f"delete topic [{options.topic}] from cluster [{options.clusterName or 'all'}] success.")
        print_lines(f"delete topic [{options.topic}] from NameServer success.")


async def update_topic_perm(admin: Admin, options: SimpleNamespace) -> None:
    perm = int_of(options, "perm")
    if perm not in (2, 4, 6):
        raise click.UsageError(f"argument -p: {perm} is not a permission; expected 2, 4 or 6")
    configs = await admin.topic_configs(options.topic)
    for broker in await targets_of(admin, options):
        if broker.name in configs:
            await admin.alter_topic(options.topic, perm=perm, broker=broker.address)
            print_lines(f"update topic perm from {configs[broker.name].perm} to {perm} in {broker.address} success.")


async def topic_list(admin: Admin, options: SimpleNamespace) -> None:
    if not options.clusterModel:
        print_lines(*await admin.topic_names())
        return
    print_row = print_titles("{:<20.20}  {:<48.48}  {:<48.48}", "#Cluster Name", "#Topic", "#Consumer Group")
    for cluster in sorted({one.cluster for one in await admin.list_brokers()}):
        for topic in await admin.topic_names(cluster=cluster):
            if topic.startswith(("%RETRY%", "%DLQ%")):
                continue
            try:
                groups = await admin.topic_groups(topic)
            except NotFoundError:
                groups = []
            for group in groups or [""]:
                print_row(cluster, topic, group)


async def topic_route(admin: Admin, options: SimpleNamespace) -> None:
    route = await admin.topic_route(options.topic)
    if options.list:
        titles = ("#Cluster Name", "#Broker Name", "#Broker Addrs", "#Read Queue", "#Write Queue", "#Perm")
        print_row = print_titles("{:<45} {:<32} {:<25} {:<11} {:<12} {}", *titles)
        for one in route.queue_counts:
            for address in route.brokers.get(one.broker_name, {}).values():
                cluster = route.clusters.get(one.broker_name, "")
                print_row(cluster, one.broker_name, address, one.read, one.write, one.perm)
        return
    data = TopicRouteData(
        [BrokerData(route.clusters.get(name, ""), name, addresses) for name, addresses in sorted(route.brokers.items())],
        [QueueData(one.broker_name, one.read, one.write, one.perm) for one in route.queue_counts],
    )
    print(escape_json(json.dumps(data.to_json(), indent="\t", separators=(",", ":"), ensure_ascii=False, sort_keys=True)))


async def topic_status(admin: Admin, options: SimpleNamespace) -> None:
    titles = ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    print_row = print_titles("{:<32.32}  {:<4}  {:<20}  {:<20}    {}", *titles)
    for one in await admin.topic_status(options.topic):
        print_row(one.broker, one.queue_id, one.min_offset, one.max_offset, time_text(one.last_stored_ms))
    print_lines("")


async def topic_cluster_list(admin: Admin, options: SimpleNamespace) -> None:
    route = await admin.topic_route(options.topic)
    print_lines(*sorted(set(route.clusters.values())))


async def update_order_conf(admin: Admin, options: SimpleNamespace) -> None:
    topic = options.topic
    if options.method == "put":
        if not options.orderConf:
            raise click.UsageError("argument -v: expected broker:queues, joined by semicolons")
        try:
            queues = parse_order(options.orderConf)
        except AdminError as error:
            raise click.UsageError(f"argument -v: {error}") from None
        if options.confirmed(f"fix the queues of {topic} to {format_order(queues)} on all name servers"):
            await admin.set_order_config(topic, queues)
            print_lines(f"update orderConf success. topic=[{topic}], orderConf=[{format_order(queues)}]")
    elif options.method == "get":
        known = await admin.order_config(topic)
        if known is None:
            raise NotFoundError(f"topic {topic!r} has no order configuration")
        print_lines(f"get orderConf success. topic=[{topic}], orderConf=[{format_order(known)}] ")
    elif options.method == "delete":
        if options.confirmed(f"delete the order configuration of {topic} on all name servers"):
            await admin.delete_order_config(topic)
            print_lines(f"delete orderConf success. topic=[{topic}]")
    else:
        raise click.UsageError(f"argument -m: {options.method!r} is not a method; expected get, put or delete")


async def stats_all(admin: Admin, options: SimpleNamespace) -> None:
    titles = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    print_row = print_titles("{:<64.64}  {:<64.64} {:>12} {:>11} {:>11} {:>14} {:>14}", *titles)
    brokers = await admin.list_brokers(masters_only=True)
    names = [options.topic] if options.topic else [one.topic for one in await admin.list_topics() if one.kind == "normal"]
    for topic in names:
        put_tps, put_day = await _sum_statistics(admin, brokers, "TOPIC_PUT_NUMS", topic)
        if options.activeTopic and not put_day:
            continue
        for group in await admin.topic_groups(topic) or [""]:
            get_tps, get_day, lag = 0.0, 0, 0
            if group:
                get_tps, get_day = await _sum_statistics(admin, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
                lag = sum(max(one.lag, 0) for one in await admin.group_progress(group, topic=topic))
            print_row(topic, group, lag, f"{put_tps:.2f}", f"{get_tps:.2f}", put_day, get_day)


async def _sum_statistics(admin: Admin, brokers: list[BrokerAddress], name: str, key: str) -> tuple[float, int]:
    """Return (per second, in the last day), summed over the brokers."""
    found = [await admin.broker_statistics(one.address, name, key) for one in brokers]
    return (
        sum(one.stats_minute.tps for one in found if one is not None),
        sum(one.stats_day.sum for one in found if one is not None),
    )
