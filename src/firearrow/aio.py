"""The clients for asyncio. Messages, results, errors and hooks are those of `firearrow`.

import firearrow as fa

async with fa.aio.Producer("127.0.0.1:9876") as producer:
    await producer.send(fa.Message("Orders", b"hello"))
"""

from __future__ import annotations

from firearrow.client.consumer.pull_consumer import PullConsumer
from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.producer.producer import Producer
from firearrow.client.producer.transaction import TransactionProducer

__all__ = ["Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]
