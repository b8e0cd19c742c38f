"""`firearrow send`: messages from words or lines, and where each was stored."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator

from firearrow.cli.messages.common import client_keywords
from firearrow.client.message import Message, SendResult, SendStatus
from firearrow.client.producer.producer import Producer

IN_FLIGHT = 1_000


async def run(options: argparse.Namespace) -> int:
    pending: deque[asyncio.Future[SendResult]] = deque()
    all_ok = True
    async with Producer(
        options.name_server, group=options.group, send_timeout=options.timeout / 1000, **client_keywords(options)
    ) as producer:
        async for body in _bodies(options):
            message = Message(options.topic, body, options.tag, options.keys, dict(options.properties))
            pending.append(_send(producer, message, options))
            while pending and (pending[0].done() or len(pending) > IN_FLIGHT):
                all_ok &= _tell(await pending.popleft(), as_json=options.json)
        while pending:
            all_ok &= _tell(await pending.popleft(), as_json=options.json)
    return 0 if all_ok else 1


def _send(producer: Producer, message: Message, options: argparse.Namespace) -> asyncio.Future[SendResult]:
    if options.delay is not None or options.deliver_at is not None:
        # Only `send` knows whether the broker is one that would not wait.
        return asyncio.ensure_future(
            producer.send(message, sharding_key=options.sharding_key, delay=options.delay, deliver_at=options.deliver_at)
        )
    return producer.send_nowait(message, sharding_key=options.sharding_key, delay_level=options.delay_level)


async def _bodies(options: argparse.Namespace) -> AsyncIterator[bytes]:
    if options.body is None:
        lines = _lines()
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


async def _lines() -> AsyncIterator[bytes]:
    """Lines of standard input without their ends; empty ones are left out, since no broker takes an empty body."""
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        body = line.rstrip(b"\r\n")
        if body:
            yield body


def _tell(result: SendResult, *, as_json: bool) -> bool:
    """Prints where a message is. False if it is less safe there than it should be."""
    queue = result.queue
    if as_json:
        told = {
            "msg_id": result.msg_id, "topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id,
            "offset": result.queue_offset, "status": result.status.value, "recall_handle": result.recall_handle,
        }  # fmt: skip
        print(json.dumps(told))
    else:
        recall = f" recall handle {result.recall_handle}" if result.recall_handle else ""
        status = "" if result.status is SendStatus.OK else f" {result.status.value}"
        print(f"{result.msg_id} {queue.topic} {queue.broker_name}/{queue.queue_id} @{result.queue_offset}{status}{recall}")
    return result.status is SendStatus.OK
