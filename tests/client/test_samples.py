"""The programs by which the client was designed, as a user would write them. Only the address is another."""

from __future__ import annotations

import asyncio
import contextlib
import io
import textwrap
from typing import Any

from firearrow.testing import Cluster

SYNC = """
import firearrow as fa

with fa.Producer("127.0.0.1:9876", group="orders") as producer:
    result = producer.send(fa.Message("Orders", b"hello", tags="new", keys=["A1"], properties={"n": "1"}))
    print(result.msg_id, result.queue_id, result.queue_offset)
    producer.send(fa.Message("Orders", b"later"), delay=10)              # seconds; also deliver_at=datetime, delay_level=3
    producer.send(fa.Message("Orders", b"in order"), sharding_key="order-7")
    producer.send_batch([fa.Message("Orders", b"a"), fa.Message("Orders", b"b")])   # split at 4 MB by itself
    producer.send_oneway(fa.Message("Orders", b"gone"))

def handle(message: fa.ReceivedMessage) -> None:                          # an exception means: try again later
    print(message.body, message.tags, message.reconsume_times)

with fa.PushConsumer("127.0.0.1:9876", group="billing", subscribe={"Orders": "new || paid"}, listener=handle) as consumer:
    consumer.run(timeout=5)
"""

ASYNC = """
import firearrow.aio as aio
async def main():
    async with aio.Producer("127.0.0.1:9876") as producer:
        await producer.send(fa.Message("Orders", b"hello"))
    async with aio.PullConsumer("127.0.0.1:9876", group="audit", topics=["Orders"]) as consumer:
        async for message in consumer:
            ...
"""


def run(source: str, cluster: Cluster, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(textwrap.dedent(source).replace("127.0.0.1:9876", cluster.name_server), namespace)
    return out.getvalue()


def test_they_run_as_they_stand() -> None:
    namespace: dict[str, Any] = {"__name__": "sample"}
    with Cluster(clock=None) as cluster:
        sent, *consumed = run(SYNC, cluster, namespace).splitlines()
        msg_id, queue_id, offset = sent.split()
        assert len(msg_id) == 32
        assert (0 <= int(queue_id) < 8, offset) == (True, "0")
        assert consumed == ["b'hello' new 0"]
        bodies = sorted(message.body for message in cluster.messages("Orders"))
        assert bodies == sorted([b"hello", b"in order", b"a", b"b", b"gone"])

        run(ASYNC, cluster, namespace)

        async def for_a_while() -> None:
            main = asyncio.ensure_future(namespace["main"]())
            while len(await cluster.aio.messages("Orders")) < 6:
                await asyncio.sleep(0.01)
            main.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await main

        asyncio.run(asyncio.wait_for(for_a_while(), 60))
