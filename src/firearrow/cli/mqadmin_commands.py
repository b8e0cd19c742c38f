"""What the subcommands of `firearrow mqadmin` do and print, in the columns of Apache's tool."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.admin.brokers import decimal
from firearrow.admin.cluster import BrokerAddress
from firearrow.admin.errors import NotFoundError
from firearrow.admin.offsets import OffsetChange, Target
from firearrow.cli.asking import confirmed
from firearrow.cli.mqadmin_values import (
    attributes_of,
    bool_of,
    day_total,
    int_of,
    java_text,
    moment_of,
    ms_of,
    perm_text,
    print_config,
    targets_of,
    time_text,
)
from firearrow.cli.operate.client import version_name
from firearrow.cli.operate.offset import told
from firearrow.cli.operate.words import WrongWordsError
from firearrow.client.message import MessageQueue, ReceivedMessage

Subcommand = Callable[[Admin, argparse.Namespace], Awaitable[None]]


async def carry_out(admin: Admin, options: argparse.Namespace) -> int:
    await _COMMANDS[options.subcommand](admin, options)
    return 0


# ---- topics


async def update_topic(admin: Admin, options: argparse.Namespace) -> None:
    read, write, perm = (int_of(options, name) for name in ("readQueueNums", "writeQueueNums", "perm"))
    order = bool_of(options, "order")
    attributes = attributes_of(options.attributes)
    for broker in await targets_of(admin, options):
        try:
            there = broker.name in await admin.topic_configs(options.topic)
        except NotFoundError:
            there = False
        if there:
            await admin.alter_topic(
                options.topic,
                read_queues=read,
                write_queues=write,
                perm=perm,
                order=order,
                attributes=attributes,
                broker=broker.address,
            )
        else:
            plain = {name: value for name, value in attributes.items() if value is not None}
            await admin.create_topic(
                options.topic,
                read_queues=read,
                write_queues=write,
                perm=perm,
                order=order,
                attributes=plain,
                broker=broker.address,
            )
        print(f"create topic to {broker.address} success.")
    print(
        f"TopicConfig [topicName={options.topic}, readQueueNums={read}, writeQueueNums={write}, perm={perm_text(perm)}, "
        f"topicFilterType=SINGLE_TAG, topicSysFlag=0, order={str(order).lower()}, attributes={options.attributes or '{}'}]"
    )


async def delete_topic(admin: Admin, options: argparse.Namespace) -> None:
    if confirmed(options, f"delete the topic {options.topic}"):
        await admin.delete_topic(options.topic, cluster=options.clusterName)
        print(f"delete topic [{options.topic}] from cluster [{options.clusterName or 'all'}] success.")
        print(f"delete topic [{options.topic}] from NameServer success.")


async def update_topic_perm(admin: Admin, options: argparse.Namespace) -> None:
    perm = int_of(options, "perm")
    if perm not in (2, 4, 6):
        raise WrongWordsError(f"argument -p: {perm} is not a permission; expected 2, 4 or 6")
    configs = await admin.topic_configs(options.topic)
    for broker in await targets_of(admin, options):
        if broker.name in configs:
            await admin.alter_topic(options.topic, perm=perm, broker=broker.address)
            print(f"update topic perm from {configs[broker.name].perm} to {perm} in {broker.address} success.")


async def topic_list(admin: Admin, options: argparse.Namespace) -> None:
    if not options.clusterModel:
        print("\n".join(await admin.topic_names()))
        return
    print(f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}")
    for cluster in sorted({one.cluster for one in await admin.list_brokers()}):
        for topic in await admin.topic_names(cluster=cluster):
            if topic.startswith(("%RETRY%", "%DLQ%")):
                continue
            try:
                groups = await admin.topic_groups(topic)
            except NotFoundError:
                groups = []
            for group in groups or [""]:
                print(f"{cluster[:20]:<20}  {topic[:48]:<48}  {group[:48]:<48}")


async def topic_route(admin: Admin, options: argparse.Namespace) -> None:
    route = await admin.topic_route(options.topic)
    if options.list:
        print(
            f"{'#Cluster Name':<45} {'#Broker Name':<32} {'#Broker Addrs':<25} {'#Read Queue':<11} {'#Write Queue':<12} {'#Perm'}"
        )
        for one in route.queue_counts:
            for address in route.brokers.get(one.broker_name, {}).values():
                cluster = route.clusters.get(one.broker_name, "")
                print(f"{cluster:<45} {one.broker_name:<32} {address:<25} {one.read:<11} {one.write:<12} {one.perm}")
        return
    brokers = [
        {
            "brokerAddrs": {str(number): address for number, address in addresses.items()},
            "brokerName": name,
            "cluster": route.clusters.get(name, ""),
            "enableActingMaster": False,
        }
        for name, addresses in sorted(route.brokers.items())
    ]
    queues = [
        {
            "brokerName": one.broker_name,
            "perm": one.perm,
            "readQueueNums": one.read,
            "topicSysFlag": 0,
            "writeQueueNums": one.write,
        }
        for one in route.queue_counts
    ]
    value = {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": queues}
    print(json.dumps(value, indent="\t", separators=(",", ":"), ensure_ascii=False))


async def topic_status(admin: Admin, options: argparse.Namespace) -> None:
    print(f"{'#Broker Name':<32}  {'#QID':<4}  {'#Min Offset':<20}  {'#Max Offset':<20}    #Last Updated")
    for one in await admin.topic_status(options.topic):
        updated = time_text(one.last_stored_ms)
        print(f"{one.broker[:32]:<32}  {one.queue_id:<4}  {one.min_offset:<20}  {one.max_offset:<20}    {updated}")
    print()


async def topic_cluster_list(admin: Admin, options: argparse.Namespace) -> None:
    route = await admin.topic_route(options.topic)
    print("\n".join(sorted(set(route.clusters.values()))))


# ---- groups


async def update_sub_group(admin: Admin, options: argparse.Namespace) -> None:
    names = {
        "consumeEnable": "consume_enable", "consumeFromMinEnable": "consume_from_min_enable",
        "consumeBroadcastEnable": "consume_broadcast_enable", "consumeMessageOrderly": "consume_message_orderly",
    }  # fmt: skip
    settings: dict[str, Any] = {to: bool_of(options, name) for name, to in names.items() if getattr(options, name) is not None}
    numbers = {"retryQueueNums": "retry_queue_nums", "retryMaxTimes": "retry_max_times"}
    settings |= {to: int_of(options, name) for name, to in numbers.items() if getattr(options, name) is not None}
    try:
        known = await admin.group_configs(options.groupName)
    except NotFoundError:
        known = {}
    for broker in await targets_of(admin, options):
        if broker.name in known:
            await admin.alter_group(options.groupName, settings, broker=broker.address)
        else:
            await admin.create_group(options.groupName, settings, broker=broker.address)
        print(f"create subscription group to {broker.address} success.")


async def delete_sub_group(admin: Admin, options: argparse.Namespace) -> None:
    if not confirmed(options, f"delete the group {options.groupName}"):
        return
    for broker in await targets_of(admin, options):
        await admin.delete_group(options.groupName, keep_offsets=not bool_of(options, "removeOffset"), broker=broker.address)
        print(f"delete subscription group [{options.groupName}] from broker [{broker.address}] success.")


async def get_consumer_config(admin: Admin, options: argparse.Namespace) -> None:
    clusters = {one.name: one.cluster for one in await admin.list_brokers()}
    for broker, config in sorted((await admin.group_configs(options.groupName)).items()):
        print(f"============================={clusters.get(broker, '')}:{broker}=============================")
        for key, value in config.to_json().items():
            print(f"{key:<40}=  {java_text(value)}")


async def consumer_progress(admin: Admin, options: argparse.Namespace) -> None:
    if options.groupName is None:
        print(f"{'#Group':<64}  {'#Count':<6}  {'#Version':<24} {'#Type':<5}  {'#Model':<14}  {'#TPS':<7}  #Diff Total")
        for group in await admin.list_groups(system=True):
            if not group.members and not group.lag and not group.topics:
                continue
            version, kind = "OFFLINE", ""
            if group.members:
                connection = await admin.consumer_connection(group.group)
                version = version_name(min(one.version for one in connection.connection_set))
                kind = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL"}.get(group.consume_type or "", "")
            model = group.message_model or ""
            tps = int(await admin.group_rate(group.group))
            print(f"{group.group[:64]:<64}  {group.members:<6}  {version:<24} {kind:<5}  {model:<14}  {tps:<7}  {group.lag}")
        return
    members = bool_of(options, "showClientIP")
    queues = await admin.group_progress(options.groupName, topic=options.topicName, members=members)
    client = f"{'#Client IP':<20} " if members else ""
    print(
        f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Broker Offset':<20}  {'#Consumer Offset':<20}  {client}"
        f"{'#Diff':<20} {'#Inflight':<20}  #LastTime"
    )
    for one in queues:
        client = f"{(one.client_id or 'N/A').partition('@')[0]:<20} " if members else ""
        print(
            f"{one.topic[:64]:<64}  {one.broker[:32]:<32}  {one.queue_id:<4}  {one.broker_offset:<20}  {one.consumer_offset:<20} "
            f" {client}{one.lag:<20} {one.in_flight:<20}  {time_text(one.last_consumed_ms)}"
        )
    print()
    print(f"Consume TPS: {await admin.group_rate(options.groupName):.2f}")
    print(f"Consume Diff Total: {sum(one.lag for one in queues)}")
    print(f"Consume Inflight Total: {sum(one.in_flight for one in queues)}")


async def consumer_connection(admin: Admin, options: argparse.Namespace) -> None:
    connection = await admin.consumer_connection(options.consumerGroup)
    print(f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version")
    for one in connection.connection_set:
        print(f"{one.client_id:<36} {one.client_addr:<22} {one.language or '':<10} {version_name(one.version)}")
    print("\nBelow is subscription:\n" + f"{'#Topic':<20}  #SubExpression")
    for topic, wanted in sorted(connection.subscription_table.items()):
        print(f"{topic:<20}  {wanted.sub_string}")
    print(f"\nConsumeType: {connection.consume_type}")
    print(f"MessageModel: {connection.message_model}")
    print(f"ConsumeFromWhere: {connection.consume_from_where}")


async def producer_connection(admin: Admin, options: argparse.Namespace) -> None:
    for number, one in enumerate(await admin.producer_connection(options.producerGroup, options.topic), 1):
        print(f"{number:04d}  {one.client_id:<32} {one.client_addr:<22} {one.language or '':<8} {version_name(one.version)}")


async def producer(admin: Admin, options: argparse.Namespace) -> None:
    groups: dict[str, list[str]] = {}
    for one in await admin.list_producers(broker=options.broker):
        line = f"client-id={one.client_id},remoteIP={one.address}, lang={one.language}, version={version_name(one.version)}"
        groups.setdefault(one.group, []).append(line)
    for group, lines in groups.items():
        print(f"producer group ({group}) instances are : ")
        print("\n".join(f"\t{line}" for line in lines))


# ---- offsets


async def reset_offset_by_time(admin: Admin, options: argparse.Namespace) -> None:
    queue_id = int_of(options, "queue") if options.queue is not None else None
    to: Target
    if options.offset is not None:
        to = int_of(options, "offset")
    else:
        to = "end" if options.timestamp == "now" else moment_of(options.timestamp, "-s")
    brokers = [one.name for one in await admin.list_brokers(broker=options.broker)] if options.broker else [None]
    plan = await admin.plan_reset(options.group, options.topic, to, broker=brokers[0], queue_id=queue_id)
    if not confirmed(options, told(options.group, options.topic, plan)):
        return
    changes = await admin.reset_offset(options.group, options.topic, to, broker=brokers[0], queue_id=queue_id)
    print(f"rollback consumer offset by specified group[{options.group}], topic[{options.topic}], force[true], "
          f"timestamp(string)[{options.timestamp}], timestamp(long)[{ms_of(to)}]")  # fmt: skip
    _print_changes(changes)


async def skip_accumulated_message(admin: Admin, options: argparse.Namespace) -> None:
    plan = await admin.plan_reset(options.group, options.topic, "end")
    if confirmed(options, told(options.group, options.topic, plan)):
        _print_changes(await admin.reset_offset(options.group, options.topic, "end"))


async def clone_group_offset(admin: Admin, options: argparse.Namespace) -> None:
    if confirmed(options, f"give {options.destGroup} the offsets of {options.srcGroup} in {options.topic}"):
        await admin.clone_offsets(options.srcGroup, options.destGroup, options.topic, offline=bool_of(options, "offline"))
        print(
            f"clone group offset success. srcGroup[{options.srcGroup}], destGroup=[{options.destGroup}], topic[{options.topic}]"
        )


# ---- messages


async def query_msg_by_id(admin: Admin, options: argparse.Namespace) -> None:
    for msg_id in options.msgId.split(","):
        await _print_message(admin, await admin.message_by_offset_id(msg_id.strip()))


async def query_msg_by_unique_key(admin: Admin, options: argparse.Namespace) -> None:
    found = await admin.messages_by_key(options.topic, options.msgId, unique=True)
    if not found:
        raise NotFoundError(f"no message of {options.topic!r} has the id {options.msgId!r}")
    for message in found:
        await _print_message(admin, message)


async def query_msg_by_key(admin: Admin, options: argparse.Namespace) -> None:
    begin, end = (moment_of(text, "-b or -e") if text else None for text in (options.beginTimestamp, options.endTimestamp))
    found = await admin.messages_by_key(
        options.topic, options.msgKey, begin=begin, end=end, max_messages=int_of(options, "maxNum")
    )
    print(f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}")
    for message in found:
        print(f"{message.msg_id:<50} {message.queue_id:>4} {message.queue_offset:>40}")


async def query_msg_by_offset(admin: Admin, options: argparse.Namespace) -> None:
    queue = MessageQueue(options.topic, options.brokerName, int_of(options, "queueId"))
    await _print_message(admin, await admin.message_at(queue, int_of(options, "offset")))


async def print_msg(admin: Admin, options: argparse.Namespace) -> None:
    begin, end = (moment_of(text, "-b or -e") if text else None for text in (options.beginTimestamp, options.endTimestamp))
    tags = None if options.subExpression.strip() == "*" else {tag.strip() for tag in options.subExpression.split("||")}
    for message in await admin.messages_between(options.topic, begin=begin, end=end, max_messages=2**31):
        if tags is None or message.tags in tags:
            body = message.body.decode(errors="replace") if bool_of(options, "printBody") else "NOT PRINT BODY"
            print(f"MSGID: {message.msg_id} {message!r} BODY: {body}")


async def query_msg_trace_by_id(admin: Admin, options: argparse.Namespace) -> None:
    events = await admin.message_trace(options.msgId, trace_topic=options.traceTopic)
    print(f"{'#Type':<10} {'#ProducerGroup':<20} {'#ClientHost':<20} {'#SendTime':<20} {'#CostTimes':<10} #Status")
    for one in events:
        if one.kind == "Pub":
            status = "success" if one.success else "failed"
            print(f"{'Pub':<10} {one.group:<20} {one.client:<20} {time_text(one.time_ms):<20} {f'{one.cost_ms}ms':<10} {status}")
    print(f"\n{'#Type':<10} {'#ConsumerGroup':<20} {'#ClientHost':<20} {'#ConsumerTime':<20} {'#CostTimes':<10} #Status")
    for one in events:
        if one.kind == "SubAfter":
            status = "success" if one.success else "failed"
            print(f"{'Sub':<10} {one.group:<20} {one.client:<20} {time_text(one.time_ms):<20} {f'{one.cost_ms}ms':<10} {status}")


# ---- clusters, brokers, name servers


async def cluster_list(admin: Admin, options: argparse.Namespace) -> None:
    brokers = await admin.list_brokers(cluster=options.clusterName)
    if options.moreStats:
        print(
            f"{'#Cluster Name':<16}  {'#Broker Name':<32} {'#InTotalYest':>14} {'#OutTotalYest':>14} "
            f"{'#InTotalToday':>14} {'#OutTotalToday':>14}"
        )
    else:
        print(
            f"{'#Cluster Name':<22}  {'#Broker Name':<22}  {'#BID':<4}  {'#Addr':<22} {'#Version':<16}  {'#InTPS(LOAD)':>16}  "
            f"{'#OutTPS(LOAD)':>30}  "
            f"{'#Timer(Progress)':<22}  {'#PCWait(ms)':<11}  {'#Hour':<12}  {'#SPACE':<8}  {'#ACTIVATED':<10}"
        )
    for one in brokers:
        status = await admin.broker_status(one.address)
        if options.moreStats:
            if one.is_master:
                totals = [day_total(status, way, day) for day in ("yesterday", "today") for way in ("Put", "Get")]
                print(f"{one.cluster:<16}  {one.name:<32} " + " ".join(f"{total:>14}" for total in totals))
            continue
        send, pull = (
            f"{decimal(status, name):.2f}({status.get(f'{pool}ThreadPoolQueueSize', '0')},"
            f"{status.get(f'{pool}ThreadPoolQueueHeadWaitTimeMills', '0')}ms)"
            for name, pool in (("putTps", "send"), ("getTransferredTps", "pull"))
        )
        behind = f"{status.get('timerReadBehind', '0')}-{status.get('timerOffsetBehind', '0')}"
        earliest = decimal(status, "earliestMessageTimeStamp")
        hours = (time.time() * 1000 - earliest) / 3_600_000 if earliest > 0 else 0.0
        space = f"{decimal(status, 'commitLogDiskRatio'):.4f}"
        print(
            f"{one.cluster:<22}  {one.name:<22}  {one.broker_id:<4}  {one.address:<22} {status.get('brokerVersionDesc', ''):<16} "
            f" {send:>16}  {pull:>30}  {behind:<22}  {status.get('pageCacheLockTimeMills', '0'):<11}  {hours:<12.2f}  {space:<8} "
            f" {status.get('brokerActive', 'true'):>10}"
        )


async def broker_status(admin: Admin, options: argparse.Namespace) -> None:
    targets = await targets_of(admin, options)
    for broker in targets:
        for key, value in sorted((await admin.broker_status(broker.address)).items()):
            print(f"{broker.address:<24} {key:<32}: {value}" if len(targets) > 1 else f"{key:<32}: {value}")


async def broker_consume_stats(admin: Admin, options: argparse.Namespace) -> None:
    least = int_of(options, "level")
    names = {one.name for one in await admin.list_brokers(broker=options.brokerAddr)}
    print(
        f"{'#Topic':<64}  {'#Group':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Broker Offset':<20}  {'#Consumer Offset':<20}  "
        f"{'#Diff':<20}  #LastTime"
    )
    total = 0
    for group in await admin.group_names(system=True):
        for one in await admin.group_progress(group):
            if one.broker in names and one.lag >= least:
                total += one.lag
                print(
                    f"{one.topic[:64]:<64}  {group[:64]:<64}  {one.broker[:32]:<32}  {one.queue_id:<4}  {one.broker_offset:<20}  "
                    f"{one.consumer_offset:<20}  {one.lag:<20}  {time_text(one.last_consumed_ms)}"
                )
    print(f"\nDiff Total: {total}")


async def get_broker_config(admin: Admin, options: argparse.Namespace) -> None:
    for broker in await targets_of(admin, options):
        print_config(broker.address, await admin.broker_config(broker.address), options.keyPattern or "")


async def update_broker_config(admin: Admin, options: argparse.Namespace) -> None:
    targets = await targets_of(admin, options)
    if confirmed(options, f"set {options.key}={options.value} at {', '.join(one.name for one in targets)}"):
        for broker in targets:
            await admin.set_broker_config(broker.address, {options.key: options.value})
            print(f"update broker config success, {broker.address}")


async def get_namesrv_config(admin: Admin, options: argparse.Namespace) -> None:
    for address, config in (await admin.name_server_config()).items():
        print_config(address, config)


async def update_namesrv_config(admin: Admin, options: argparse.Namespace) -> None:
    if confirmed(options, f"set {options.key}={options.value} at all name servers"):
        await admin.set_name_server_config({options.key: options.value})
        print(f"update name server config success!{list(admin.options.name_servers)}\n{options.key} : {options.value}")


async def update_kv_config(admin: Admin, options: argparse.Namespace) -> None:
    await admin.kv_put(options.namespace, options.key, options.value)
    print("create or update kv config to namespace success.")


async def delete_kv_config(admin: Admin, options: argparse.Namespace) -> None:
    if confirmed(options, f"delete {options.key} of {options.namespace} at all name servers"):
        await admin.kv_delete(options.namespace, options.key)
        print("delete kv config from namespace success.")


async def wipe_write_perm(admin: Admin, options: argparse.Namespace) -> None:
    if confirmed(options, f"take the permission to write from {options.brokerName}"):
        for address, count in (await admin.wipe_write_permission(options.brokerName)).items():
            print(f"wipe write perm of broker[{options.brokerName}] in name server[{address}] OK, {count}")


async def add_write_perm(admin: Admin, options: argparse.Namespace) -> None:
    for address, count in (await admin.add_write_permission(options.brokerName)).items():
        print(f"add write perm of broker[{options.brokerName}] in name server[{address}] OK, {count}")


async def clean(admin: Admin, options: argparse.Namespace) -> None:
    way = {
        "cleanExpiredCQ": admin.clean_expired_queues,
        "cleanUnusedTopic": admin.clean_unused_topics,
        "deleteExpiredCommitLog": admin.delete_expired_log,
    }[options.subcommand]
    targets = await targets_of(admin, options)
    if confirmed(options, f"clean up at {', '.join(one.name for one in targets)}"):
        for broker in targets:
            await way(broker.address)
        print("success")


async def stats_all(admin: Admin, options: argparse.Namespace) -> None:
    print(
        f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11} {'#OutTPS':>11} "
        f"{'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}"
    )
    brokers = await admin.list_brokers(masters_only=True)
    names = [options.topic] if options.topic else [one.topic for one in await admin.list_topics() if one.kind == "normal"]
    for topic in names:
        put_tps, put_day = await _counted(admin, brokers, "TOPIC_PUT_NUMS", topic)
        if options.activeTopic and not put_day:
            continue
        for group in await admin.topic_groups(topic) or [""]:
            get_tps, get_day, lag = 0.0, 0, 0
            if group:
                get_tps, get_day = await _counted(admin, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
                lag = sum(max(one.lag, 0) for one in await admin.group_progress(group, topic=topic))
            print(f"{topic[:64]:<64}  {group[:64]:<64} {lag:>12} {put_tps:>11.2f} {get_tps:>11.2f} {put_day:>14} {get_day:>14}")


# ---- inside


async def _counted(admin: Admin, brokers: list[BrokerAddress], name: str, key: str) -> tuple[float, int]:
    """(a second, in the last day) over all brokers."""
    found = [await admin.broker_statistics(one.address, name, key) for one in brokers]
    return (
        sum(one.stats_minute.tps for one in found if one is not None),
        sum(one.stats_day.sum for one in found if one is not None),
    )


async def _print_message(admin: Admin, message: ReceivedMessage) -> None:
    lines = {
        "OffsetID": message.offset_msg_id, "Topic": message.topic, "Tags": f"[{message.tags}]",
        "Keys": f"[{' '.join(message.keys)}]",
        "Queue ID": message.queue_id, "Queue Offset": message.queue_offset, "CommitLog Offset": message.commit_log_offset,
        "Reconsume Times": message.reconsume_times, "Born Timestamp": time_text(message.born_ms, 3),
        "Store Timestamp": time_text(message.store_ms, 3), "Born Host": message.born_host, "Store Host": message.store_host,
        "System Flag": message.sys_flag, "Properties": java_text(message.properties),
        "Message Body": message.body.decode(errors="backslashreplace"),
    }  # fmt: skip
    for title, value in lines.items():
        print(f"{title + ':':<20} {value}")
    print()
    for one in await admin.track(message):
        print(f"MessageTrack [consumerGroup={one.group}, trackType={one.status}, exceptionDesc={one.detail or 'null'}]")


def _print_changes(changes: list[OffsetChange]) -> None:
    print(f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}")
    for change in changes:
        print(f"{change.queue.broker_name:<40}  {change.queue.queue_id:<40}  {change.after:<40}")


_COMMANDS: dict[str, Subcommand] = {
    "updateTopic": update_topic, "deleteTopic": delete_topic, "updateTopicPerm": update_topic_perm, "topicList": topic_list,
    "topicRoute": topic_route, "topicStatus": topic_status, "topicClusterList": topic_cluster_list,
    "updateSubGroup": update_sub_group, "deleteSubGroup": delete_sub_group, "getConsumerConfig": get_consumer_config,
    "consumerProgress": consumer_progress, "consumerConnection": consumer_connection,
    "producerConnection": producer_connection, "producer": producer, "resetOffsetByTime": reset_offset_by_time,
    "skipAccumulatedMessage": skip_accumulated_message, "cloneGroupOffset": clone_group_offset, "queryMsgById": query_msg_by_id,
    "queryMsgByUniqueKey": query_msg_by_unique_key, "queryMsgByKey": query_msg_by_key, "queryMsgByOffset": query_msg_by_offset,
    "printMsg": print_msg, "queryMsgTraceById": query_msg_trace_by_id, "clusterList": cluster_list, "brokerStatus": broker_status,
    "brokerConsumeStats": broker_consume_stats, "getBrokerConfig": get_broker_config, "updateBrokerConfig": update_broker_config,
    "getNamesrvConfig": get_namesrv_config, "updateNamesrvConfig": update_namesrv_config, "updateKvConfig": update_kv_config,
    "deleteKvConfig": delete_kv_config, "wipeWritePerm": wipe_write_perm, "addWritePerm": add_write_perm,
    "cleanExpiredCQ": clean, "cleanUnusedTopic": clean, "deleteExpiredCommitLog": clean, "statsAll": stats_all,
}  # fmt: skip
