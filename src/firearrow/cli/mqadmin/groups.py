"""`firearrow mqadmin`: groups, their members and offsets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.admin.offsets import OffsetChange, Target
from firearrow.cli.mqadmin.format import (
    bool_of,
    int_of,
    java_text,
    ms_of,
    print_lines,
    print_titles,
    targets_of,
    time_of,
    time_text,
)
from firearrow.cli.operator.client import version_name
from firearrow.cli.operator.offset import describe_reset
from firearrow.escaping import escape_controls


async def update_sub_group(admin: Admin, options: SimpleNamespace) -> None:
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
        print_lines(f"create subscription group to {broker.address} success.")


async def delete_sub_group(admin: Admin, options: SimpleNamespace) -> None:
    if not options.confirmed(f"delete the group {options.groupName}"):
        return
    for broker in await targets_of(admin, options):
        await admin.delete_group(options.groupName, keep_offsets=not bool_of(options, "removeOffset"), broker=broker.address)
        print_lines(f"delete subscription group [{options.groupName}] from broker [{broker.address}] success.")


async def get_consumer_config(admin: Admin, options: SimpleNamespace) -> None:
    clusters = {one.name: one.cluster for one in await admin.list_brokers()}
    for broker, config in sorted((await admin.group_configs(options.groupName)).items()):
        print_lines(f"============================={clusters.get(broker, '')}:{broker}=============================")
        for key, value in config.to_json().items():
            print_lines(f"{key:<40}=  {java_text(value)}")


async def consumer_progress(admin: Admin, options: SimpleNamespace) -> None:
    if options.groupName is None:
        template = "{:<64.64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}"
        print_row = print_titles(template, "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
        for group in await admin.list_groups(system=True):
            if not group.members and not group.lag and not group.topics:
                continue
            version, kind = "OFFLINE", ""
            if group.members:
                connection = await admin.consumer_connection(group.group)
                version = version_name(min(one.version for one in connection.connection_set))
                kind = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL"}.get(group.consume_type or "", "")
            tps = int(await admin.group_rate(group.group))
            print_row(group.group, group.members, version, kind, group.message_model or "", tps, group.lag)
        return
    members = bool_of(options, "showClientIP")
    queues = await admin.group_progress(options.groupName, topic=options.topicName, members=members)
    template = "{:<64.64}  {:<32.32}  {:<4}  {:<20}  {:<20}  {}{:<20} {:<20}  {}"
    titles = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    client = f"{'#Client IP':<20} " if members else ""
    print_row = print_titles(template, *titles, client, "#Diff", "#Inflight", "#LastTime")
    for one in queues:
        client = f"{(one.client_id or 'N/A').partition('@')[0]:<20} " if members else ""
        offsets = (one.broker_offset, one.consumer_offset, client, one.lag, one.in_flight)
        print_row(one.topic, one.broker, one.queue_id, *offsets, time_text(one.last_consumed_ms))
    print_lines("", f"Consume TPS: {await admin.group_rate(options.groupName):.2f}")
    print_lines(f"Consume Diff Total: {sum(one.lag for one in queues)}")
    print_lines(f"Consume Inflight Total: {sum(one.in_flight for one in queues)}")


async def consumer_connection(admin: Admin, options: SimpleNamespace) -> None:
    connection = await admin.consumer_connection(options.consumerGroup)
    print_row = print_titles("{:<36} {:<22} {:<10} {}", "#ClientId", "#ClientAddr", "#Language", "#Version")
    for one in connection.connection_set:
        print_row(one.client_id, one.client_addr, one.language or "", version_name(one.version))
    print_lines("", "Below is subscription:")
    print_row = print_titles("{:<20}  {}", "#Topic", "#SubExpression")
    for topic, wanted in sorted(connection.subscription_table.items()):
        print_row(topic, wanted.sub_string)
    print_lines("", f"ConsumeType: {connection.consume_type}")
    print_lines(f"MessageModel: {connection.message_model}")
    print_lines(f"ConsumeFromWhere: {connection.consume_from_where}")


async def producer_connection(admin: Admin, options: SimpleNamespace) -> None:
    for number, one in enumerate(await admin.producer_connection(options.producerGroup, options.topic), 1):
        print_lines(
            f"{number:04d}  {one.client_id:<32} {one.client_addr:<22} {one.language or '':<8} {version_name(one.version)}"
        )


async def producer(admin: Admin, options: SimpleNamespace) -> None:
    groups: dict[str, list[str]] = {}
    for one in await admin.list_producers(broker=options.broker):
        line = f"client-id={one.client_id},remoteIP={one.address}, lang={one.language}, version={version_name(one.version)}"
        groups.setdefault(one.group, []).append(line)
    for group, lines in groups.items():
        print_lines(f"producer group ({group}) instances are : ")
        for line in lines:
            print(f"\t{escape_controls(line)}")


async def reset_offset_by_time(admin: Admin, options: SimpleNamespace) -> None:
    queue_id = int_of(options, "queue") if options.queue is not None else None
    to: Target
    if options.offset is not None:
        to = int_of(options, "offset")
    else:
        to = "latest" if options.timestamp == "now" else time_of(options.timestamp, "-s")
    brokers = [one.name for one in await admin.list_brokers(broker=options.broker)] if options.broker else [None]
    plan = await admin.plan_reset(options.group, options.topic, to, broker=brokers[0], queue_id=queue_id)
    if not options.confirmed(describe_reset(options.group, options.topic, plan)):
        return
    changes = await admin.reset_offset(options.group, options.topic, to, broker=brokers[0], queue_id=queue_id)
    print_lines(f"rollback consumer offset by specified group[{options.group}], topic[{options.topic}], force[true], "
          f"timestamp(string)[{options.timestamp}], timestamp(long)[{ms_of(to)}]")  # fmt: skip
    _print_changes(changes)


async def skip_accumulated_message(admin: Admin, options: SimpleNamespace) -> None:
    plan = await admin.plan_reset(options.group, options.topic, "latest")
    if options.confirmed(describe_reset(options.group, options.topic, plan)):
        _print_changes(await admin.reset_offset(options.group, options.topic, "latest"))


async def clone_group_offset(admin: Admin, options: SimpleNamespace) -> None:
    if options.confirmed(f"give {options.destGroup} the offsets of {options.srcGroup} in {options.topic}"):
        await admin.clone_offsets(options.srcGroup, options.destGroup, options.topic, offline=bool_of(options, "offline"))
        print_lines(
            f"clone group offset success. srcGroup[{options.srcGroup}], destGroup=[{options.destGroup}], topic[{options.topic}]"
        )


def _print_changes(changes: list[OffsetChange]) -> None:
    print_row = print_titles("{:<40}  {:<40}  {:<40}", "#brokerName", "#queueId", "#offset")
    for change in changes:
        print_row(change.queue.broker_name, change.queue.queue_id, change.after)
