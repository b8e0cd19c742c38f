"""A message broker and name server compatible with Apache RocketMQ, its Python client and its Spark tables.

    import firearrow as fa

    with fa.Producer("127.0.0.1:9876", group="orders") as producer:
        producer.send(fa.Message("Orders", b"hello", tags="new"))

The clients here block until their results are known; `firearrow.aio` has the same clients for asyncio. Names are loaded on first
use, so importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from firearrow import aio as aio
    from firearrow.client.consumer.allocation import AllocationStrategy as AllocationStrategy
    from firearrow.client.consumer.allocation import Averagely as Averagely
    from firearrow.client.consumer.allocation import AveragelyByCircle as AveragelyByCircle
    from firearrow.client.consumer.allocation import Configured as Configured
    from firearrow.client.consumer.allocation import ConsistentHash as ConsistentHash
    from firearrow.client.consumer.allocation import MachineRoom as MachineRoom
    from firearrow.client.consumer.allocation import MachineRoomNearby as MachineRoomNearby
    from firearrow.client.consumer.listener import RetryLater as RetryLater
    from firearrow.client.consumer.subscription import Sql as Sql
    from firearrow.client.errors import BrokerError as BrokerError
    from firearrow.client.errors import ClientError as ClientError
    from firearrow.client.errors import ClosedError as ClosedError
    from firearrow.client.errors import ConnectionLost as ConnectionLost
    from firearrow.client.errors import DecompressionError as DecompressionError
    from firearrow.client.errors import FirearrowError as FirearrowError
    from firearrow.client.errors import InvalidMessageError as InvalidMessageError
    from firearrow.client.errors import NoRouteError as NoRouteError
    from firearrow.client.errors import RequestTimeout as RequestTimeout
    from firearrow.client.hooks import ConsumeContext as ConsumeContext
    from firearrow.client.hooks import ConsumeHook as ConsumeHook
    from firearrow.client.hooks import EndTransactionContext as EndTransactionContext
    from firearrow.client.hooks import EndTransactionHook as EndTransactionHook
    from firearrow.client.hooks import MessageKind as MessageKind
    from firearrow.client.hooks import SendContext as SendContext
    from firearrow.client.hooks import SendHook as SendHook
    from firearrow.client.message import Message as Message
    from firearrow.client.message import MessageQueue as MessageQueue
    from firearrow.client.message import ReceivedMessage as ReceivedMessage
    from firearrow.client.message import SendResult as SendResult
    from firearrow.client.message import SendStatus as SendStatus
    from firearrow.client.options import Credentials as Credentials
    from firearrow.client.producer.batches import PartialBatchError as PartialBatchError
    from firearrow.client.producer.transaction import LocalTransactionState as LocalTransactionState
    from firearrow.client.producer.transaction import TransactionSendResult as TransactionSendResult
    from firearrow.client.sync.clients import Producer as Producer
    from firearrow.client.sync.clients import PullConsumer as PullConsumer
    from firearrow.client.sync.clients import PushConsumer as PushConsumer
    from firearrow.client.sync.clients import TransactionProducer as TransactionProducer

_NAMES = {
    "consumer.allocation": (
        "AllocationStrategy", "Averagely", "AveragelyByCircle", "Configured", "ConsistentHash", "MachineRoom",
        "MachineRoomNearby",
    ),
    "producer.batches": ("PartialBatchError",),
    "errors": (
        "BrokerError", "ClientError", "ClosedError", "ConnectionLost", "DecompressionError", "FirearrowError",
        "InvalidMessageError", "NoRouteError", "RequestTimeout",
    ),
    "hooks": (
        "ConsumeContext", "ConsumeHook", "EndTransactionContext", "EndTransactionHook", "MessageKind", "SendContext", "SendHook",
    ),
    "consumer.listener": ("RetryLater",),
    "message": ("Message", "MessageQueue", "ReceivedMessage", "SendResult", "SendStatus"),
    "options": ("Credentials",),
    "consumer.subscription": ("Sql",),
    "sync.clients": ("Producer", "PullConsumer", "PushConsumer", "TransactionProducer"),
    "producer.transaction": ("LocalTransactionState", "TransactionSendResult"),
}  # fmt: skip
_MODULE_OF = {name: f"firearrow.client.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 (a computed list)


if not TYPE_CHECKING:  # otherwise a type checker would accept every name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name == "aio":
            return import_module("firearrow.aio")
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'firearrow' has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "aio"})
