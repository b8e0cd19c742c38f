"""`firearrow message ...`"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from firearrow.admin.aio import Admin
from firearrow.cli.arguments import CommandGroup, add_filters, count, number
from firearrow.cli.asking import ProgressBar, confirmed
from firearrow.cli.terminal import Output, body_text
from firearrow.client.message import MessageQueue, ReceivedMessage

COLUMNS = ["msg_id", "broker", "queue_id", "offset", "stored_ms", "tags", "keys", "size", "body"]
SHORT = 60  # characters of a body in a table


def add(verbs: CommandGroup) -> None:
    show = verbs.add("show", show_, "show a message by either of its ids", example="message show Orders 7F00000100012A9F0000")
    show.add_argument("topic", metavar="TOPIC")
    show.add_argument("msg_id", metavar="ID")
    _add_body(show)

    at = verbs.add("at", at_, "show the message at an offset of a queue")
    at.add_argument("topic", metavar="TOPIC")
    at.add_argument("broker", metavar="BROKER")
    at.add_argument("queue_id", metavar="QUEUE", type=number)
    at.add_argument("offset", metavar="OFFSET", type=number)
    _add_body(at)

    find = verbs.add(
        "find", find_, "find messages by key, time, tag or what is in them", example="message find Orders --from 10m --tag paid"
    )
    find.add_argument("topic", metavar="TOPIC")
    add_filters(find)
    find.add_argument("--broker", help="only queues of this broker")
    find.add_argument("--queue", dest="queue_id", metavar="N", type=number, help="only this queue")
    find.add_argument("--limit", metavar="N", type=count, default=100, help="end after so many (default: %(default)s)")
    _add_body(find)

    peek = verbs.add("peek", peek_, "show the newest messages of a topic")
    peek.add_argument("topic", metavar="TOPIC")
    peek.add_argument("--count", metavar="N", type=count, default=10, help="default: %(default)s")
    peek.add_argument("--oldest", action="store_true", help="the oldest instead")
    peek.add_argument("--broker", help="only queues of this broker")
    peek.add_argument("--queue", dest="queue_id", metavar="N", type=number, help="only this queue")
    _add_body(peek)

    track = verbs.add("track", track_, "show what each group has made of a message")
    track.add_argument("topic", metavar="TOPIC")
    track.add_argument("msg_id", metavar="ID")

    resend = verbs.add("resend", resend_, "store a copy of a message at the end of its topic, or of another", destroys=True)
    resend.add_argument("topic", metavar="TOPIC")
    resend.add_argument("msg_id", metavar="ID")
    resend.add_argument("--to", metavar="TOPIC", help="of this topic")

    consume = verbs.add("consume", consume_, "have a member of a group consume a message once more", destroys=True)
    consume.add_argument("topic", metavar="TOPIC")
    consume.add_argument("msg_id", metavar="ID")
    consume.add_argument("group", metavar="GROUP")
    consume.add_argument("--client", metavar="CLIENT", help="this member (default: any)")

    undecided = verbs.add("undecided", undecided_, "list transactions that brokers gave up: nobody decided them")
    undecided.add_argument("--limit", metavar="N", type=count, default=100, help="end after so many (default: %(default)s)")
    _add_body(undecided)

    recheck = verbs.add("recheck", recheck_, "have a producer asked again about a transaction that was given up", destroys=True)
    recheck.add_argument("msg_id", metavar="ID")


def _add_body(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--body", choices=("auto", "text", "json", "hex"), default="auto", help="how the body is printed (default: %(default)s)"
    )


async def show_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    print_message(out, await admin.find_message(options.topic, options.msg_id), options.body)


async def at_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    queue = MessageQueue(options.topic, options.broker, options.queue_id)
    print_message(out, await admin.message_at(queue, options.offset), options.body)


async def find_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    filtered = (
        options.tag is not None or options.contains is not None or options.broker is not None or options.queue_id is not None
    )
    if options.key is not None and not filtered:  # the index knows
        found = await admin.messages_by_key(
            options.topic, options.key, begin=options.begin, end=options.end, max_messages=options.limit
        )
        found = found or await admin.messages_by_key(options.topic, options.key, unique=True)
    else:
        bar = ProgressBar("looking")
        found = await admin.messages_between(
            options.topic,
            begin=options.begin,
            end=options.end,
            tag=options.tag,
            key=options.key,
            contains=options.contains,
            broker=options.broker,
            queue_id=options.queue_id,
            max_messages=options.limit,
            progress=bar,
        )
        bar.clear()
    print_messages(out, found, options.body)


async def peek_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    found = await admin.peek(
        options.topic, options.count, oldest=options.oldest, broker=options.broker, queue_id=options.queue_id
    )
    print_messages(out, found, options.body)


async def track_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    message = await admin.find_message(options.topic, options.msg_id)
    out.rows([asdict(one) for one in await admin.track(message)], ["group", "status", "detail"])


async def resend_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    message = await admin.find_message(options.topic, options.msg_id)
    to = options.to or options.topic
    if not confirmed(options, f"send {message.msg_id} again to all groups of {to}"):
        return
    stored = await admin.resend(message, to=to)
    out.done(f"sent {message.msg_id} to {to}; the copy is {stored}", msg_id=message.msg_id, topic=to, offset_msg_id=stored)


async def consume_(admin: Admin, options: argparse.Namespace, out: Output) -> int:
    message = await admin.find_message(options.topic, options.msg_id)
    if not confirmed(options, f"have {options.group} consume {message.msg_id} once more"):
        return 0
    result = await admin.consume_directly(options.group, message, client_id=options.client)
    sentence = f"{options.group}: {result.consume_result} in {result.spent_time_mills} ms" + (
        f": {result.remark}" if result.remark else ""
    )
    out.done(
        sentence,
        group=options.group,
        msg_id=message.msg_id,
        result=result.consume_result,
        spent_ms=result.spent_time_mills,
        remark=result.remark,
    )
    return 0 if result.consume_result in ("CR_SUCCESS", "CR_COMMIT") else 1


async def undecided_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    print_messages(out, await admin.given_up_transactions(max_messages=options.limit), options.body)


async def recheck_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    if not confirmed(options, f"have the producer of {options.msg_id} be asked again"):
        return
    kept = await admin.resume_check(options.msg_id)
    out.done(f"{options.msg_id} is asked about again; it was kept as {kept}", msg_id=options.msg_id, offset_msg_id=kept)


def described(message: ReceivedMessage, body: str) -> dict[str, Any]:
    return {
        "msg_id": message.msg_id, "offset_msg_id": message.offset_msg_id, "topic": message.topic,
        "broker": message.queue.broker_name, "queue_id": message.queue_id, "offset": message.queue_offset,
        "stored_ms": message.store_ms, "store_host": message.store_host, "born_ms": message.born_ms,
        "born_host": message.born_host, "reconsume_times": message.reconsume_times, "tags": message.tags,
        "keys": list(message.keys), "properties": message.all_properties, "size": len(message.body), "body": body,
    }  # fmt: skip


def print_message(out: Output, message: ReceivedMessage, form: str) -> None:
    one = described(message, body_text(message.body, form if out.form == "table" else _plain(form)))
    if out.form != "table":
        out.record(one)
        return
    body = one.pop("body")
    properties = one.pop("properties")
    out.record(one)
    for name, value in properties.items():
        out.text(f"  {name}={value}")
    out.text(f"\n{body}")


def print_messages(out: Output, messages: list[ReceivedMessage], form: str) -> None:
    rows = []
    for message in messages:
        text = body_text(message.body, _plain(form))
        if out.form == "table":
            text = " ".join(text.split())
            text = text if len(text) <= SHORT else f"{text[: SHORT - 3]}..."
        rows.append(described(message, text))
    out.rows(rows, COLUMNS)


def _plain(form: str) -> str:
    """Programs get text, unless they asked for something else."""
    return "text" if form == "auto" else form
