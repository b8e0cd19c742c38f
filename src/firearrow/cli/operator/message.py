"""`firearrow message`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Any, Final

import click

from firearrow.admin.aio import Admin
from firearrow.cli.arguments import BROKER, BYTES, COUNT, GROUP, NUMBER, TIME, TOPIC
from firearrow.cli.command import FAILURE, SUCCESS, Group, options
from firearrow.cli.messages.consume import describe
from firearrow.cli.terminal import Output, body_text, short_body
from firearrow.client.message import MessageQueue, ReceivedMessage

COLUMNS: Final = ["msg_id", "broker", "queue_id", "offset", "stored_ms", "tags", "keys", "size", "body"]


message = Group("message")


topic_argument = click.argument("topic", type=TOPIC)
id_argument = click.argument("msg_id", metavar="ID")
body_option = click.option(
    "--body",
    "body_form",
    type=click.Choice(("auto", "text", "json", "hex")),
    default="auto",
    show_default=True,
    help="Format of the body.",
)
limit_option = click.option("--limit", metavar="N", type=COUNT, default=100, show_default=True, help="Stop after N messages.")


filter_options = options(
    click.option("--from", "begin", type=TIME, help="Only messages stored since 2030-01-31T12:00:00, or an age: 10m."),
    click.option("--until", "end", type=TIME, help="Only messages stored before this time."),
    click.option("--tag", help="Only messages with this tag."),
    click.option("--key", help="Only messages with this key or id."),
    click.option("--contains", metavar="TEXT", type=BYTES, help="Only messages with this text in the body."),
)
queue_options = options(
    click.option("--broker", type=BROKER, help="Only queues of this broker."),
    click.option("--queue", "queue_id", metavar="N", type=NUMBER, help="Only this queue."),
)


@message.admin_command("show", epilog="Example: firearrow message show Orders 7F00000100012A9F0000")
@topic_argument
@id_argument
@body_option
async def show(admin: Admin, out: Output, topic: str, msg_id: str, body_form: str) -> None:
    """Show a message by the producer's id or the offset id."""
    found = await admin.find_message(topic, msg_id)
    print_record(out, describe(found), found.body, body_form)


@message.admin_command("at")
@topic_argument
@click.argument("broker", type=BROKER)
@click.argument("queue_id", metavar="QUEUE", type=NUMBER)
@click.argument("offset", type=NUMBER)
@body_option
async def at(admin: Admin, out: Output, topic: str, broker: str, queue_id: int, offset: int, body_form: str) -> None:
    """Show the message at an offset of a queue."""
    found = await admin.message_at(MessageQueue(topic, broker, queue_id), offset)
    print_record(out, describe(found), found.body, body_form)


@message.admin_command("find", epilog="Example: firearrow message find Orders --from 10m --tag paid")
@topic_argument
@filter_options
@queue_options
@limit_option
@body_option
async def find(admin: Admin, out: Output, topic: str, limit: int, body_form: str, **filters: Any) -> None:
    """Find messages by key, time, tag or content."""
    given = {name: value for name, value in filters.items() if value is not None}
    if "key" in given and given.keys() <= {"key", "begin", "end"}:  # the index answers
        found = await admin.messages_by_key(topic, **given, max_messages=limit)
        found = found or await admin.messages_by_key(topic, given["key"], unique=True)
    else:
        with closing(out.progress("searching")) as progress:
            found = await admin.messages_between(topic, **given, max_messages=limit, progress=progress)
    print_messages(out, found, body_form)


@message.admin_command("peek")
@topic_argument
@click.option("--count", metavar="N", type=COUNT, default=10, show_default=True, help="Number of messages.")
@click.option("--oldest", is_flag=True, help="The oldest messages instead of the newest.")
@queue_options
@body_option
async def peek(admin: Admin, out: Output, topic: str, body_form: str, **options: Any) -> None:
    """Show the newest messages of a topic."""
    print_messages(out, await admin.peek(topic, **options), body_form)


@message.admin_command("track")
@topic_argument
@id_argument
async def track(admin: Admin, out: Output, topic: str, msg_id: str) -> None:
    """Show for each group whether it has consumed a message."""
    found = await admin.find_message(topic, msg_id)
    out.rows([asdict(one) for one in await admin.track(found)], ["group", "status", "detail"])


@message.admin_command("resend", destructive=True)
@topic_argument
@id_argument
@click.option("--to", "destination", metavar="TOPIC", type=TOPIC, help="Another topic.")
async def resend(admin: Admin, out: Output, topic: str, msg_id: str, destination: str | None) -> None:
    """Append a copy of a message to its topic, or to another one."""
    found = await admin.find_message(topic, msg_id)
    to = destination or topic
    if out.confirmed(f"send {found.msg_id} to {to} again, for all its groups"):
        stored = await admin.resend(found, to=to)
        out.done(f"sent {found.msg_id} to {to}; the copy is {stored}", msg_id=found.msg_id, topic=to, offset_msg_id=stored)


@message.admin_command("consume", destructive=True)
@topic_argument
@id_argument
@click.argument("group", type=GROUP)
@click.option("--client", "client_id", metavar="CLIENT", help="The member to use.  [default: any]")
async def consume(admin: Admin, out: Output, topic: str, msg_id: str, group: str, client_id: str | None) -> int:
    """Let a member of a group consume a message again. The exit code is 1 if that fails."""
    found = await admin.find_message(topic, msg_id)
    if not out.confirmed(f"let {group} consume {found.msg_id} again"):
        return SUCCESS
    result = await admin.consume_directly(group, found, client_id=client_id)
    sentence = f"{group}: {result.consume_result} in {result.spent_time_mills} ms"
    out.done(
        f"{sentence}: {result.remark}" if result.remark else sentence,
        group=group,
        msg_id=found.msg_id,
        result=result.consume_result,
        spent_ms=result.spent_time_mills,
        remark=result.remark,
    )
    return SUCCESS if result.consume_result in ("CR_SUCCESS", "CR_COMMIT") else FAILURE


@message.admin_command("undecided")
@limit_option
@body_option
async def undecided(admin: Admin, out: Output, limit: int, body_form: str) -> None:
    """List transactions whose check a broker has given up."""
    print_messages(out, await admin.given_up_transactions(max_messages=limit), body_form)


@message.admin_command("recheck", destructive=True)
@id_argument
async def recheck(admin: Admin, out: Output, msg_id: str) -> None:
    """Resume the check of a transaction that a broker has given up."""
    if out.confirmed(f"resume the check of transaction {msg_id}"):
        kept = await admin.resume_check(msg_id)
        out.done(f"resumed the check of {msg_id}, stored as {kept}", msg_id=msg_id, offset_msg_id=kept)


def print_record(out: Output, record: dict[str, Any], body: bytes, body_form: str) -> None:
    """Print a message's fields, then its properties and body."""
    if not out.for_people:
        out.record(record | {"body": body_text(body, _program_form(body_form))})
        return
    properties = record.pop("properties")
    record.pop("body")
    out.record(record)
    for name, value in properties.items():
        out.text(f"  {name}={value}")
    out.paragraph(body_text(body, body_form))


def print_messages(out: Output, messages: list[ReceivedMessage], body_form: str) -> None:
    rows = [
        describe(one) | {"body": short_body(one.body) if out.for_people else body_text(one.body, _program_form(body_form))}
        for one in messages
    ]
    out.rows(rows, COLUMNS)


def _program_form(body_form: str) -> str:
    return "text" if body_form == "auto" else body_form
