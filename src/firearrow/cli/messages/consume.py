"""`firearrow consume`: prints the messages of a topic.

Without a group it reads all queues on its own and leaves no trace at the brokers. With one it is a member like any other: it gets
its share of the queues and commits what it has printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from typing import Any

from firearrow.cli.messages.common import client_keywords
from firearrow.client.consumer.pull_consumer import PullConsumer
from firearrow.client.consumer.queue_offsets import StartFrom
from firearrow.client.consumer.subscription import Expression, Sql
from firearrow.client.message import ReceivedMessage
from firearrow.wire.names import TOOLS_CONSUMER_GROUP

POLL_MS = 1_000
POSITIONS: dict[Any, StartFrom] = {"first": "earliest", "last": "latest"}


async def run(options: argparse.Namespace) -> int:
    expression: Expression = Sql(options.sql) if options.sql is not None else options.tags
    member = options.group is not None
    consumer = PullConsumer(
        options.name_server,
        group=options.group or TOOLS_CONSUMER_GROUP,
        subscribe={options.topic: expression} if member else None,
        start_from=POSITIONS.get(options.start, options.start),
        auto_commit=member,
        **client_keywords(options),
    )
    async with consumer:
        if not member:
            await consumer.assign(await consumer.queues(options.topic), expression)
            await consumer.seek_all(POSITIONS.get(options.start, options.start))
        await _print_messages(consumer, options)
    return 0


async def _print_messages(consumer: PullConsumer, options: argparse.Namespace) -> None:
    left: int | None = options.count
    quiet_ms = 0
    while left is None or left > 0:
        poll_ms = POLL_MS if options.wait is None else min(POLL_MS, max(int(options.wait * 1000) - quiet_ms, 1))
        messages = await consumer.poll(poll_ms / 1000, max_messages=32 if left is None else min(32, left))
        quiet_ms = 0 if messages else quiet_ms + poll_ms
        for message in messages:
            _print(message, options)
        if messages:
            sys.stdout.flush()
        elif options.wait is not None and quiet_ms >= options.wait * 1000:
            return
        if left is not None:
            left -= len(messages)


def _print(message: ReceivedMessage, options: argparse.Namespace) -> None:
    if options.only_body:
        sys.stdout.buffer.write(message.body + b"\n")
    elif options.json:
        print(json.dumps(_described(message), ensure_ascii=False))
    else:
        stored = datetime.fromtimestamp(message.store_ms / 1000).isoformat(sep=" ", timespec="milliseconds")
        tags = f" tags={message.tags}" if message.tags else ""
        keys = f" keys={','.join(message.keys)}" if message.keys else ""
        again = f" again={message.reconsume_times}" if message.reconsume_times else ""
        where = f"{message.queue.broker_name}/{message.queue_id} @{message.queue_offset}"
        print(f"{where} {stored}{tags}{keys}{again} {_text(message.body)}")


def _described(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "msg_id": message.msg_id, "topic": message.topic, "broker": message.queue.broker_name, "queue": message.queue_id,
        "offset": message.queue_offset, "stored_ms": message.store_ms, "born_ms": message.born_ms, "born_host": message.born_host,
        "reconsume_times": message.reconsume_times, "tags": message.tags, "keys": list(message.keys),
        "properties": message.all_properties, "body": _text(message.body),
    }  # fmt: skip


def _text(body: bytes) -> str:
    """As text, with escapes for what is none."""
    return body.decode("utf-8", errors="backslashreplace")
