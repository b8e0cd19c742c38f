"""The doctor's checks of topics and groups: what lies there and will not be consumed."""

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

MOST_TOPICS: Final = 500  # that are asked for one by one
SOON: Final = 0.8  # of the time that messages are kept
_HOUR_MS: Final = 3_600_000


async def examine_topics(client: ClientInstance, report: Report) -> None:
    topics = [one for one in await list_topics(client) if one.kind == "normal"]
    report.looked_at("topics", len(topics))
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
                    f"on {broker} it has {config.write_queue_nums} write queues and {config.read_queue_nums} read queues: what "
                    "is sent to the others is not consumed",
                    f"firearrow topic alter {one.topic} --read-queues {config.write_queue_nums} --broker {broker}",
                )  # fmt: skip
    if len(topics) > MOST_TOPICS:
        cause = f"there are {len(topics)}: whether somebody consumes them was looked at for the first {MOST_TOPICS} only"
        report.add(NOTE, "topics", "cluster", cause)
    await for_each((one.topic for one in topics[:MOST_TOPICS]), lambda topic: _unconsumed(client, report, topic))


async def examine_groups(client: ClientInstance, report: Report) -> None:
    groups = await list_groups(client)
    report.looked_at("groups", len(groups))
    hours = await _kept_hours(client)
    for group in groups:
        try:
            await _group(client, report, group, hours)
        except FirearrowError as error:
            report.add(NOTE, "groups", group.group, f"it cannot be examined: {error}")
    for letters in await dead_letter_counts(client):
        report.add(
            WARNING, "dead letters", letters.group, f"{letters.messages} messages could not be consumed and wait as dead letters",
            f"firearrow dlq list {letters.group}; firearrow dlq resend {letters.group} --all",
        )  # fmt: skip


async def _routes(client: ClientInstance, report: Report, topics: Sequence[str]) -> None:
    """Topics that clients cannot find, and brokers that were told to take nothing."""
    known = set(await topic_names(client))
    for topic in topics:
        if topic not in known:
            report.add(
                ERROR, "routes", topic, "its broker has it, but the name server does not know it: clients cannot find it",
                "wait for the next registration (30 s); if it does not come, restart the broker",
            )  # fmt: skip
    try:
        route = await topic_route(client, SELF_TEST_TOPIC)  # on every broker, open for writing
    except FirearrowError:
        return
    report.looked_at("routes")
    for one in route.queue_counts:
        if not one.perm & PERM_WRITE:
            report.add(
                WARNING, "routes", one.broker_name,
                "name servers tell clients not to send to it: its permission to write was taken",
                f"firearrow broker allow {one.broker_name}",
            )  # fmt: skip


async def _unconsumed(client: ClientInstance, report: Report, topic: str) -> None:
    try:
        messages = sum(queue.messages for queue in await topic_status(client, topic))
        groups = await topic_groups(client, topic) if messages else []
    except NotFoundError:  # without a route, which was said already
        return
    if messages and not groups:
        report.add(
            NOTE, "topics", topic, f"it has {messages} messages, and no group consumes it or ever did",
            f"firearrow consume {topic} shows them; firearrow topic delete {topic}, if nobody needs it",
        )  # fmt: skip


async def _group(client: ClientInstance, report: Report, group: GroupSummary, hours: float) -> None:
    progress = await group_progress(client, group.group)
    if group.lag > 0 and not group.members:
        report.add(
            WARNING, "groups", group.group, f"{group.lag} messages wait for it, and none of its members is connected",
            f"start its consumers; or firearrow offset reset {group.group} TOPIC --to end, if the messages are not needed",
        )  # fmt: skip
    await _expiring(client, report, group.group, progress, hours)
    if group.members and group.message_model != "BROADCASTING":
        await _members(client, report, group.group, progress)


async def _expiring(client: ClientInstance, report: Report, group: str, progress: Sequence[QueueProgress], hours: float) -> None:
    """Messages that expired unread, and those that are about to."""
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
                ERROR, "groups", group, f"{lost} messages of {topic} expired before it consumed them",
                f"firearrow offset reset {group} {topic} --to begin makes it go on where messages still are",
            )  # fmt: skip
        ages = [now_ms - queue.last_consumed_ms for queue in queues if queue.last_consumed_ms]
        if ages and max(ages) > SOON * hours * _HOUR_MS:
            report.add(
                WARNING, "groups", group,
                f"it is {max(ages) / _HOUR_MS:.0f} hours behind in {topic}, and messages are kept {hours:.0f} hours: unread ones "
                "will expire",
                f"more or faster consumers of {group}; until then firearrow config set --broker BROKER "
                f"fileReservedTime={int(hours * 2)}",
            )  # fmt: skip


async def _members(client: ClientInstance, report: Report, group: str, progress: Sequence[QueueProgress]) -> None:
    """Members that want different things, and queues that none of them has."""
    infos: dict[str, ConsumerRunningInfo] = {}
    for member in (await consumer_connection(client, group)).connection_set:
        try:
            infos[member.client_id] = await running_info(client, group, member.client_id)
        except FirearrowError:
            report.add(NOTE, "groups", group, f"the member {member.client_id} does not say what it does")
            return
    wanted: dict[frozenset[tuple[str, str]], list[str]] = {}
    for client_id, info in infos.items():
        of_member = frozenset(
            (one.topic, one.sub_string) for one in info.subscription_set if not one.topic.startswith(RETRY_PREFIX)
        )
        wanted.setdefault(of_member, []).append(client_id)
    if len(wanted) > 1:
        told = "; ".join(
            f"{', '.join(ids)}: {', '.join(f'{topic} [{tags}]' for topic, tags in sorted(subscription)) or 'nothing'}"
            for subscription, ids in sorted(wanted.items(), key=lambda pair: pair[1])
        )
        report.add(
            ERROR, "groups", group, f"its members subscribe to different things ({told}): messages are skipped or left lying",
            "give all members of a group the same subscriptions, or each kind of consumer a group of its own",
        )  # fmt: skip
        return
    taken = {(queue.topic, queue.broker_name, queue.queue_id) for info in infos.values() for queue in info.mq_table}
    topics = {topic for subscription in wanted for topic, _ in subscription}
    left = [q for q in progress if q.topic in topics and q.lag > 0 and (q.topic, q.broker, q.queue_id) not in taken]
    for topic in sorted({queue.topic for queue in left}):
        numbers = ", ".join(f"{queue.broker}/{queue.queue_id}" for queue in left if queue.topic == topic)
        report.add(
            WARNING, "groups", group, f"no member consumes the queues {numbers} of {topic}, which have unread messages",
            f"firearrow client list --group {group} shows the members; restart the one that should have them",
        )  # fmt: skip


async def _kept_hours(client: ClientInstance) -> float:
    """The shortest time that a broker keeps messages."""
    hours = []
    for broker in await masters(client):
        config = await broker_config(client, broker.address)
        hours.append(decimal(config, "fileReservedTime") or 72.0)
    return min(hours)
