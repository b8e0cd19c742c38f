"""Checks of routes, topics and groups: messages that will not be consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from firearrow.admin.brokers import broker_config, decimal
from firearrow.admin.clients import consumer_connection, running_info
from firearrow.admin.cluster import for_each, masters
from firearrow.admin.dead_letters import dead_letter_counts
from firearrow.admin.doctor.findings import ERROR, NOTE, WARNING, Report
from firearrow.admin.errors import NotFoundError
from firearrow.admin.groups import GroupSummary, QueueProgress, group_progress, list_groups
from firearrow.admin.topics import QueueStatus, list_topics, topic_configs, topic_groups, topic_names, topic_route, topic_status
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.routes import PERM_WRITE
from firearrow.client.errors import FirearrowError
from firearrow.clock import wall_ms
from firearrow.wire.bodies.client import ConsumerRunningInfo
from firearrow.wire.names import RETRY_PREFIX, SELF_TEST_TOPIC

MAX_TOPICS: Final = 500  # checked one by one
EXPIRY_WARNING: Final = 0.8  # of the retention time
_HOUR_MS: Final = 3_600_000


async def examine_topics(client: ClientInstance, report: Report) -> None:
    """Check routes and topics."""
    topics = [one for one in await list_topics(client) if one.kind == "normal"]
    report.count_checked("topics", len(topics))
    await _routes(client, report, [one.topic for one in topics])
    for one in topics:
        if one.write_queues <= one.read_queues:
            continue
        try:
            configs = await topic_configs(client, one.topic)
        except NotFoundError:
            continue
        for broker, config in configs.items():
            if config.write_queue_nums > config.read_queue_nums:
                report.add(
                    ERROR, "topics", one.topic,
                    f"on {broker} it has {config.write_queue_nums} write queues but {config.read_queue_nums} read queues: "
                    "messages in the others are not consumed",
                    f"firearrow topic alter {one.topic} --read-queues {config.write_queue_nums} --broker {broker}",
                )  # fmt: skip
    if len(topics) > MAX_TOPICS:
        cause = f"there are {len(topics)} topics; only the first {MAX_TOPICS} were checked for consumers"
        report.add(NOTE, "topics", "cluster", cause)
    await for_each((one.topic for one in topics[:MAX_TOPICS]), lambda topic: _unconsumed(client, report, topic))


async def examine_groups(client: ClientInstance, report: Report) -> None:
    """Check groups and their dead letters."""
    groups = await list_groups(client)
    report.count_checked("groups", len(groups))
    hours = await _retention_hours(client)
    for group in groups:
        try:
            await _group(client, report, group, hours)
        except FirearrowError as error:
            report.add(NOTE, "groups", group.group, f"the check failed: {error}")
    for letters in await dead_letter_counts(client):
        report.add(
            WARNING, "dead letters", letters.group, f"it has {_count(letters.messages, 'dead letter')}",
            f"firearrow dlq list {letters.group}; firearrow dlq resend {letters.group} --all",
        )  # fmt: skip


async def _routes(client: ClientInstance, report: Report, topics: Sequence[str]) -> None:
    """Check for topics that clients cannot find and brokers without write permission."""
    known = set(await topic_names(client))
    for topic in topics:
        if topic not in known:
            report.add(
                ERROR, "routes", topic, "a broker has it, but the name server does not know it: clients cannot find it",
                "wait for the next registration (30 s), then restart the broker",
            )  # fmt: skip
    try:
        route = await topic_route(client, SELF_TEST_TOPIC)  # exists and is writable on every broker
    except FirearrowError:
        return
    report.count_checked("routes")
    for one in route.queue_counts:
        if not one.perm & PERM_WRITE:
            report.add(
                WARNING, "routes", one.broker_name,
                "its write permission was removed at the name servers: clients do not send to it",
                f"firearrow broker allow {one.broker_name}",
            )  # fmt: skip


async def _unconsumed(client: ClientInstance, report: Report, topic: str) -> None:
    try:
        messages = sum(queue.messages for queue in await topic_status(client, topic))
        groups = await topic_groups(client, topic) if messages else []
    except NotFoundError:  # without a route, which is another finding
        return
    if messages and not groups:
        report.add(
            NOTE, "topics", topic, f"it has {_count(messages, 'message')} and no group has ever consumed it",
            f"print it with firearrow consume {topic}; if it is not needed, firearrow topic delete {topic}",
        )  # fmt: skip


async def _group(client: ClientInstance, report: Report, group: GroupSummary, hours: float) -> None:
    progress = await group_progress(client, group.group)
    if group.lag > 0 and not group.members:
        report.add(
            WARNING, "groups", group.group, f"it has a lag of {_count(group.lag, 'message')} and no member is connected",
            f"start its consumers; if the messages are not needed, firearrow offset skip {group.group} TOPIC",
        )  # fmt: skip
    await _expiring(client, report, group.group, progress, hours)
    if group.members and group.message_model != "BROADCASTING":
        await _members(client, report, group.group, progress)


async def _expiring(client: ClientInstance, report: Report, group: str, progress: Sequence[QueueProgress], hours: float) -> None:
    """Check for messages that expired unread or are about to."""
    now_ms = wall_ms()
    behind = [queue for queue in progress if queue.lag > 0]
    for topic in sorted({queue.topic for queue in behind if not queue.topic.startswith(RETRY_PREFIX)}):
        try:
            status: dict[tuple[str, int], QueueStatus] = {
                (queue.broker, queue.queue_id): queue for queue in await topic_status(client, topic)
            }
        except NotFoundError:
            continue
        queues = [queue for queue in behind if queue.topic == topic]
        lost = sum(
            max(status[queue.broker, queue.queue_id].min_offset - queue.consumer_offset, 0)
            for queue in queues
            if (queue.broker, queue.queue_id) in status
        )
        if lost:
            report.add(
                ERROR, "groups", group, f"{_count(lost, 'message')} of {topic} expired before it consumed them",
                f"firearrow offset reset {group} {topic} --to earliest",
            )  # fmt: skip
        ages = [now_ms - queue.last_consumed_ms for queue in queues if queue.last_consumed_ms]
        if ages and max(ages) > EXPIRY_WARNING * hours * _HOUR_MS:
            report.add(
                WARNING, "groups", group,
                f"it is {max(ages) / _HOUR_MS:.0f} hours behind in {topic}, and messages are kept for {hours:.0f} hours: unread "
                "messages will expire",
                f"start more consumers of {group}; until then, firearrow config set --broker BROKER "
                f"fileReservedTime={int(hours * 2)}",
            )  # fmt: skip


async def _members(client: ClientInstance, report: Report, group: str, progress: Sequence[QueueProgress]) -> None:
    """Check for members with different subscriptions and queues without a consumer."""
    infos: dict[str, ConsumerRunningInfo] = {}
    for member in (await consumer_connection(client, group)).connection_set:
        try:
            infos[member.client_id] = await running_info(client, group, member.client_id)
        except FirearrowError:
            report.add(NOTE, "groups", group, f"member {member.client_id} does not report its state")
            return
    wanted: dict[frozenset[tuple[str, str]], list[str]] = {}
    for client_id, info in infos.items():
        subscriptions = frozenset(
            (one.topic, one.sub_string) for one in info.subscription_set if not one.topic.startswith(RETRY_PREFIX)
        )
        wanted.setdefault(subscriptions, []).append(client_id)
    if len(wanted) > 1:
        text = "; ".join(
            f"{', '.join(ids)}: {', '.join(f'{topic} [{tags}]' for topic, tags in sorted(subscription)) or 'nothing'}"
            for subscription, ids in sorted(wanted.items(), key=lambda pair: pair[1])
        )
        report.add(
            ERROR, "groups", group, f"its members have different subscriptions ({text}): messages are skipped or not consumed",
            "give all members the same subscriptions, or use a group for each kind of consumer",
        )  # fmt: skip
        return
    taken = {(queue.topic, queue.broker_name, queue.queue_id) for info in infos.values() for queue in info.mq_table}
    topics = {topic for subscription in wanted for topic, _ in subscription}
    left = [q for q in progress if q.topic in topics and q.lag > 0 and (q.topic, q.broker, q.queue_id) not in taken]
    for topic in sorted({queue.topic for queue in left}):
        numbers = ", ".join(f"{queue.broker}/{queue.queue_id}" for queue in left if queue.topic == topic)
        report.add(
            WARNING, "groups", group, f"no member consumes the queues {numbers} of {topic}, which contain unread messages",
            f"list its members with firearrow client list --group {group} and restart them",
        )  # fmt: skip


async def _retention_hours(client: ClientInstance) -> float:
    """Return the shortest retention time of the brokers, in hours."""
    hours = []
    for broker in await masters(client):
        config = await broker_config(client, broker.address)
        hours.append(decimal(config, "fileReservedTime") or 72.0)
    return min(hours)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
