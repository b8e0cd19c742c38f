"""`firearrow consume`.

Without a group it reads all queues and changes nothing on the brokers. With a group it is a member of that group: it consumes the
queues assigned to it and commits what it has printed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import click

from firearrow.cli.arguments import COUNT, DURATION, EARLIEST, GROUP, POSITION, TOPIC, Position
from firearrow.cli.command import SUCCESS, at_most_one
from firearrow.cli.messages.common import ClientArguments, client_options, run_client
from firearrow.cli.terminal import Output, local_time
from firearrow.client.consumer.pull_consumer import PullConsumer
from firearrow.client.consumer.subscription import Expression, Sql
from firearrow.client.message import ReceivedMessage
from firearrow.escaping import escape_lines
from firearrow.wire.names import TOOLS_CONSUMER_GROUP

POLL: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ConsumeArguments:
    """The values of the options of `consume` itself."""

    topic: str
    tag: str | None
    sql: str | None
    position: Position
    count: int | None
    wait: timedelta | None
    group: str | None
    only_body: bool


@click.command(epilog='Example: firearrow consume Orders --tag "new || paid" --from 10m --count 5')
@click.argument("topic", type=TOPIC)
@click.option("--tag", metavar="TAGS", help='Tags joined by ||, such as "new || paid".  [default: all]')
@click.option("--sql", metavar="EXPRESSION", help='SQL92 condition over properties, such as "amount > 100".')
@click.option(
    "--from",
    "position",
    type=POSITION,
    default=EARLIEST,
    show_default=True,
    help="earliest, latest, a time, an age (10m), or an offset. A group with committed offsets continues there.",
)
@click.option("--count", metavar="N", type=COUNT, help="Stop after N messages.")
@click.option("--wait", type=DURATION, help="Stop when no message arrives for this time.")
@click.option("--group", type=GROUP, help="Consume as a member of this group and commit offsets.")
@click.option("--body", "only_body", is_flag=True, help="Print the bodies only: unchanged, on a terminal escaped.")
@client_options
def consume(**parameters: Any) -> int:
    """Print the messages of TOPIC until --count, --wait or Ctrl-C. Without --group, no offset is committed."""
    shared = ClientArguments.take(parameters)
    options = ConsumeArguments(**parameters)
    at_most_one(tag=options.tag, sql=options.sql)
    if options.group is not None and isinstance(options.position, int):
        raise click.UsageError("--from OFFSET and --group exclude each other; use `firearrow offset reset` for a group")
    return run_client(lambda: _run(options, shared), shared)


async def _run(options: ConsumeArguments, shared: ClientArguments) -> int:
    expression: Expression = Sql(options.sql) if options.sql is not None else options.tag or "*"
    is_member = options.group is not None
    consumer = PullConsumer(
        shared.namesrv,
        group=options.group or TOOLS_CONSUMER_GROUP,
        subscribe={options.topic: expression} if is_member else None,
        start_from=EARLIEST if isinstance(options.position, int) else options.position,
        auto_commit=is_member,
        **shared.keywords(),
    )
    async with consumer:
        if not is_member:
            await consumer.assign(await consumer.queues(options.topic), expression)
            await consumer.seek_all(options.position)
        await _print_messages(consumer, options, Output(shared.output))
    return SUCCESS


async def _print_messages(consumer: PullConsumer, options: ConsumeArguments, out: Output) -> None:
    remaining = options.count
    quiet = timedelta()
    while remaining is None or remaining > 0:
        timeout = POLL if options.wait is None else min(POLL, options.wait - quiet)
        messages = await consumer.poll(timeout, max_messages=32 if remaining is None else min(32, remaining))
        quiet = timedelta() if messages else quiet + timeout
        for message in messages:
            if options.only_body:
                _print_body(message.body)
            else:
                out.item(describe(message), _line(message))
        if messages:
            out.flush()
        elif options.wait is not None and quiet >= options.wait:
            return
        if remaining is not None:
            remaining -= len(messages)


def _print_body(body: bytes) -> None:
    """Print a body unchanged, or without control characters if it goes to a terminal."""
    if sys.stdout.isatty():
        body = escape_lines(body.decode(errors="backslashreplace")).encode(sys.stdout.encoding, "backslashreplace")
    sys.stdout.buffer.write(body + b"\n")


def _line(message: ReceivedMessage) -> str:
    tags = f" tags={message.tags}" if message.tags else ""
    keys = f" keys={','.join(message.keys)}" if message.keys else ""
    retries = f" retries={message.reconsume_times}" if message.reconsume_times else ""
    position = f"{message.queue.broker_name}/{message.queue_id} @{message.queue_offset}"
    return f"{position} {local_time(message.store_ms)}{tags}{keys}{retries} {message.body.decode(errors='backslashreplace')}"


def describe(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as every command outputs it in JSON and CSV."""
    return {
        "msg_id": message.msg_id, "offset_msg_id": message.offset_msg_id, "topic": message.topic,
        "broker": message.queue.broker_name, "queue_id": message.queue_id, "offset": message.queue_offset,
        "stored_ms": message.store_ms, "store_host": message.store_host, "born_ms": message.born_ms,
        "born_host": message.born_host, "reconsume_times": message.reconsume_times, "tags": message.tags,
        "keys": list(message.keys), "properties": message.all_properties, "size": len(message.body),
        "body": message.body.decode(errors="backslashreplace"),
    }  # fmt: skip
