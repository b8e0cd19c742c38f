"""`firearrow mqadmin`: clusters, brokers and name servers."""

from __future__ import annotations

import time
from types import SimpleNamespace

from firearrow.admin.aio import Admin
from firearrow.admin.brokers import decimal
from firearrow.cli.mqadmin.format import day_total, int_of, print_config, print_lines, print_titles, targets_of, time_text


async def cluster_list(admin: Admin, options: SimpleNamespace) -> None:
    brokers = await admin.list_brokers(cluster=options.clusterName)
    if options.moreStats:
        titles = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
        print_row = print_titles("{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}", *titles)
        for one in brokers:
            status = await admin.broker_status(one.address)
            if one.is_master:
                totals = (day_total(status, way, day) for day in ("yesterday", "today") for way in ("Put", "Get"))
                print_row(one.cluster, one.name, *totals)
        return
    print_row = print_titles(
        "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:<11}  {:<12}  {:<8}  {:<10}",
        "#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)", "#Timer(Progress)",
        "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED",
    )  # fmt: skip
    for one in brokers:
        status = await admin.broker_status(one.address)
        send, pull = (
            f"{decimal(status, name):.2f}({status.get(f'{pool}ThreadPoolQueueSize', '0')},"
            f"{status.get(f'{pool}ThreadPoolQueueHeadWaitTimeMills', '0')}ms)"
            for name, pool in (("putTps", "send"), ("getTransferredTps", "pull"))
        )
        behind = f"{status.get('timerReadBehind', '0')}-{status.get('timerOffsetBehind', '0')}"
        earliest = decimal(status, "earliestMessageTimeStamp")
        hours = (time.time() * 1000 - earliest) / 3_600_000 if earliest > 0 else 0.0
        print_row(
            one.cluster, one.name, one.broker_id, one.address, status.get("brokerVersionDesc", ""), send, pull, behind,
            status.get("pageCacheLockTimeMills", "0"), f"{hours:.2f}", f"{decimal(status, 'commitLogDiskRatio'):.4f}",
            f"{status.get('brokerActive', 'true'):>10}",
        )  # fmt: skip


async def broker_status(admin: Admin, options: SimpleNamespace) -> None:
    targets = await targets_of(admin, options)
    for broker in targets:
        for key, value in sorted((await admin.broker_status(broker.address)).items()):
            print_lines(f"{broker.address:<24} {key:<32}: {value}" if len(targets) > 1 else f"{key:<32}: {value}")


async def broker_consume_stats(admin: Admin, options: SimpleNamespace) -> None:
    least = int_of(options, "level")
    names = {one.name for one in await admin.list_brokers(broker=options.brokerAddr)}
    titles = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    print_row = print_titles("{:<64.64}  {:<64.64}  {:<32.32}  {:<4}  {:<20}  {:<20}  {:<20}  {}", *titles)
    total = 0
    for group in await admin.group_names(system=True):
        for one in await admin.group_progress(group):
            if one.broker in names and one.lag >= least:
                total += one.lag
                offsets = (one.broker_offset, one.consumer_offset, one.lag)
                print_row(one.topic, group, one.broker, one.queue_id, *offsets, time_text(one.last_consumed_ms))
    print_lines("", f"Diff Total: {total}")


async def get_broker_config(admin: Admin, options: SimpleNamespace) -> None:
    for broker in await targets_of(admin, options):
        print_config(broker.address, await admin.broker_config(broker.address), options.keyPattern or "")


async def update_broker_config(admin: Admin, options: SimpleNamespace) -> None:
    targets = await targets_of(admin, options)
    if options.confirmed(f"set {options.key}={options.value} on {', '.join(one.name for one in targets)}"):
        for broker in targets:
            await admin.set_broker_config(broker.address, {options.key: options.value})
            print_lines(f"update broker config success, {broker.address}")


async def get_namesrv_config(admin: Admin, options: SimpleNamespace) -> None:
    for address, config in (await admin.name_server_config()).items():
        print_config(address, config)


async def update_namesrv_config(admin: Admin, options: SimpleNamespace) -> None:
    if options.confirmed(f"set {options.key}={options.value} on all name servers"):
        await admin.set_name_server_config({options.key: options.value})
        print_lines(f"update name server config success!{list(admin.options.name_servers)}", f"{options.key} : {options.value}")


async def update_kv_config(admin: Admin, options: SimpleNamespace) -> None:
    await admin.kv_put(options.namespace, options.key, options.value)
    print_lines("create or update kv config to namespace success.")


async def delete_kv_config(admin: Admin, options: SimpleNamespace) -> None:
    if options.confirmed(f"delete {options.key} of {options.namespace} on all name servers"):
        await admin.kv_delete(options.namespace, options.key)
        print_lines("delete kv config from namespace success.")


async def wipe_write_perm(admin: Admin, options: SimpleNamespace) -> None:
    if options.confirmed(f"remove the write permission of {options.brokerName}"):
        for address, count in (await admin.wipe_write_permission(options.brokerName)).items():
            print_lines(f"wipe write perm of broker[{options.brokerName}] in name server[{address}] OK, {count}")


async def add_write_perm(admin: Admin, options: SimpleNamespace) -> None:
    for address, count in (await admin.add_write_permission(options.brokerName)).items():
        print_lines(f"add write perm of broker[{options.brokerName}] in name server[{address}] OK, {count}")


async def clean(admin: Admin, options: SimpleNamespace) -> None:
    action = {
        "cleanExpiredCQ": admin.clean_expired_queues,
        "cleanUnusedTopic": admin.clean_unused_topics,
        "deleteExpiredCommitLog": admin.delete_expired_log,
    }[options.subcommand]
    targets = await targets_of(admin, options)
    if options.confirmed(f"clean up {', '.join(one.name for one in targets)}"):
        for broker in targets:
            await action(broker.address)
        print_lines("success")
