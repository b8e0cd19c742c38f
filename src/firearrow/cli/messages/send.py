"""`firearrow send`."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import click

from firearrow.cli.arguments import COUNT, DURATION, DURATION_OR_ZERO, PAIR, TIME, TOPIC, Number
from firearrow.cli.command import FAILURE, SUCCESS, at_most_one
from firearrow.cli.messages.common import ClientArguments, client_options, run_client
from firearrow.cli.terminal import Output
from firearrow.client.message import Message, SendResult, SendStatus
from firearrow.client.producer.producer import Producer

IN_FLIGHT: Final = 1_000


class SendArguments(NamedTuple):
    """The values of the options of `send` itself."""

    topic: str
    body: str | None
    tag: str | None
    keys: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]
    delay: timedelta | None
    delay_level: int | None
    deliver_at: datetime | None
    sharding_key: str | None
    repeat: int
    group: str
    timeout: timedelta


@click.command(epilog="Example: firearrow send Orders hello --tag new --key A1 --delay 10s")
@click.argument("topic", type=TOPIC)
@click.argument("body", required=False)
@click.option("--tag", help="Tag, by which subscriptions filter.")
@click.option("--key", "keys", multiple=True, help="Key, by which messages are found; repeatable.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, type=PAIR, help="Property; repeatable.")
@click.option("--delay", type=DURATION_OR_ZERO, help="Deliver after this time.")
@click.option(
    "--delay-level", metavar="LEVEL", type=Number(1, 18), help="Deliver after the time of a delay level of the broker, 1 to 18."
)
@click.option("--deliver-at", type=TIME, help="Deliver at this time: 2030-01-31T12:00:00.")
@click.option("--sharding-key", metavar="KEY", help="Messages with the same key go to the same queue.")
@click.option("--repeat", metavar="N", type=COUNT, default=1, show_default=True, help="Send everything N times.")
@click.option("--group", default="firearrow_send", show_default=True, help="Producer group.")
@click.option("--timeout", type=DURATION, default="3s", show_default=True, help="Time limit of each message.")
@client_options
def send(**parameters: Any) -> int:
    """Send BODY to TOPIC and print where it is stored.

    Without BODY, each line of standard input is a message. With `-`, all of standard input is one message.
    """
    shared = ClientArguments.take(parameters)
    options = SendArguments(**parameters)
    at_most_one(delay=options.delay, delay_level=options.delay_level, deliver_at=options.deliver_at)
    return run_client(lambda: _run(options, shared), shared)


async def _run(options: SendArguments, shared: ClientArguments) -> int:
    out = Output(shared.output)
    pending: deque[asyncio.Future[SendResult]] = deque()
    all_ok = True
    async with Producer(shared.namesrv, group=options.group, send_timeout=options.timeout, **shared.keywords()) as producer:
        async for body in _bodies(options):
            message = Message(options.topic, body, options.tag, options.keys, dict(options.properties))
            pending.append(_start_send(producer, message, options))
            while pending and (pending[0].done() or len(pending) > IN_FLIGHT):
                all_ok &= _print_result(out, await pending.popleft())
        while pending:
            all_ok &= _print_result(out, await pending.popleft())
    return SUCCESS if all_ok else FAILURE


def _start_send(producer: Producer, message: Message, options: SendArguments) -> asyncio.Future[SendResult]:
    if options.delay is not None or options.deliver_at is not None:
        # Only `send` checks that the broker supports timed messages.
        return asyncio.ensure_future(
            producer.send(message, sharding_key=options.sharding_key, delay=options.delay, deliver_at=options.deliver_at)
        )
    return producer.send_nowait(message, sharding_key=options.sharding_key, delay_level=options.delay_level)


async def _bodies(options: SendArguments) -> AsyncIterator[bytes]:
    if options.body is None:
        lines = _input_lines()
        if options.repeat == 1:
            async for line in lines:
                yield line
            return
        bodies = [line async for line in lines]
    elif options.body == "-":
        bodies = [await asyncio.to_thread(sys.stdin.buffer.read)]
    else:
        bodies = [options.body.encode()]
    for _ in range(options.repeat):
        for body in bodies:
            yield body


async def _input_lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input without line ends; empty lines are skipped, because brokers reject an empty body."""
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        body = line.rstrip(b"\r\n")
        if body:
            yield body


def _print_result(out: Output, result: SendResult) -> bool:
    """Print where a message is stored. Return False if it is less durable than configured."""
    queue = result.queue
    recall = f" recall handle {result.recall_handle}" if result.recall_handle else ""
    status = "" if result.status is SendStatus.OK else f" {result.status.value}"
    text = f"{result.msg_id} {queue.topic} {queue.broker_name}/{queue.queue_id} @{result.queue_offset}{status}{recall}"
    row = {
        "msg_id": result.msg_id, "topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id,
        "offset": result.queue_offset, "status": result.status.value, "recall_handle": result.recall_handle,
    }  # fmt: skip
    out.item(row, text)
    return result.status is SendStatus.OK
