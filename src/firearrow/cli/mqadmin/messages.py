"""`firearrow mqadmin`: messages and traces."""

from __future__ import annotations

from types import SimpleNamespace

from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.admin.trace import TraceEvent
from firearrow.cli.mqadmin.format import bool_of, int_of, java_text, print_lines, print_titles, time_range_of, time_text
from firearrow.client.message import MessageQueue, ReceivedMessage


async def query_msg_by_id(admin: Admin, options: SimpleNamespace) -> None:
    for msg_id in options.msgId.split(","):
        await _print_message(admin, await admin.message_by_offset_id(msg_id.strip()))


async def query_msg_by_unique_key(admin: Admin, options: SimpleNamespace) -> None:
    found = await admin.messages_by_key(options.topic, options.msgId, unique=True)
    if not found:
        raise NotFoundError(f"no message of {options.topic!r} has the id {options.msgId!r}")
    for message in found:
        await _print_message(admin, message)


async def query_msg_by_key(admin: Admin, options: SimpleNamespace) -> None:
    begin, end = time_range_of(options)
    most = int_of(options, "maxNum")
    found = await admin.messages_by_key(options.topic, options.msgKey, begin=begin, end=end, max_messages=most)
    print_row = print_titles("{:<50} {:>4} {:>40}", "#Message ID", "#QID", "#Offset")
    for message in found:
        print_row(message.msg_id, message.queue_id, message.queue_offset)


async def query_msg_by_offset(admin: Admin, options: SimpleNamespace) -> None:
    queue = MessageQueue(options.topic, options.brokerName, int_of(options, "queueId"))
    await _print_message(admin, await admin.message_at(queue, int_of(options, "offset")))


async def print_msg(admin: Admin, options: SimpleNamespace) -> None:
    begin, end = time_range_of(options)
    tags = None if options.subExpression.strip() == "*" else {tag.strip() for tag in options.subExpression.split("||")}
    for message in await admin.messages_between(options.topic, begin=begin, end=end, max_messages=2**31):
        if tags is None or message.tags in tags:
            body = message.body.decode(errors="replace") if bool_of(options, "printBody") else "NOT PRINT BODY"
            print_lines(f"MSGID: {message.msg_id} {message!r} BODY: {body}")


async def query_msg_trace_by_id(admin: Admin, options: SimpleNamespace) -> None:
    events = await admin.message_trace(options.msgId, trace_topic=options.traceTopic)
    _print_events([one for one in events if one.kind == "Pub"], "Pub", "#ProducerGroup", "#SendTime")
    print_lines("")
    _print_events([one for one in events if one.kind == "SubAfter"], "Sub", "#ConsumerGroup", "#ConsumerTime")


def _print_events(events: list[TraceEvent], kind: str, group: str, at: str) -> None:
    template = "{:<10} {:<20} {:<20} {:<20} {:<10} {}"
    print_row = print_titles(template, "#Type", group, "#ClientHost", at, "#CostTimes", "#Status")
    for one in events:
        status = "success" if one.success else "failed"
        print_row(kind, one.group, one.client, time_text(one.time_ms), f"{one.cost_ms}ms", status)


async def _print_message(admin: Admin, message: ReceivedMessage) -> None:
    lines = {
        "OffsetID": message.offset_msg_id, "Topic": message.topic, "Tags": f"[{message.tags}]",
        "Keys": f"[{' '.join(message.keys)}]",
        "Queue ID": message.queue_id, "Queue Offset": message.queue_offset, "CommitLog Offset": message.commit_log_offset,
        "Reconsume Times": message.reconsume_times, "Born Timestamp": time_text(message.born_ms, 3),
        "Store Timestamp": time_text(message.store_ms, 3), "Born Host": message.born_host, "Store Host": message.store_host,
        "System Flag": message.sys_flag, "Properties": java_text(message.all_properties),
        "Message Body": message.body.decode(errors="backslashreplace"),
    }  # fmt: skip
    for title, value in lines.items():
        print_lines(f"{title + ':':<20} {value}")
    print_lines("")
    for one in await admin.track(message):
        print_lines(f"MessageTrack [consumerGroup={one.group}, trackType={one.status}, exceptionDesc={one.detail or 'null'}]")
