"""What a client instance asks of the producers and consumers that use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.bodies.client import ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, SubscriptionData
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader


class ProducerMember(Protocol):
    """A producer, as its instance sees it. All are called on the event loop and must not block."""

    @property
    def group(self) -> str:
        """With the namespace, as brokers know it."""

    def topics(self) -> set[str]:
        """The topics whose routes are to be kept fresh (with the namespace)."""

    def route_changed(self, topic: str) -> None:
        """The route of one of them is another now."""

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        """The broker at `address` asks what became of a transaction (39)."""


class ConsumerMember(Protocol):
    """A consumer, as its instance sees it. All are called on the event loop; those that are not `async` must not block."""

    @property
    def group(self) -> str:
        """With the namespace, as brokers know it."""

    def subscriptions(self) -> list[SubscriptionData]:
        """The topics whose routes are to be kept fresh are those of the subscriptions."""

    def heartbeat(self) -> ConsumerData:
        """What heartbeats say about this consumer."""

    def rebalance_soon(self) -> None:
        """The members of the group changed (40)."""

    def route_changed(self, topic: str) -> None:
        """The route of a subscribed topic is another now."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator set the group's offsets (220): drop what is in hand of these queues and go on from there."""

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """An operator wants this one message consumed now (309)."""

    async def running_info(self) -> ConsumerRunningInfo:
        """307."""

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """221: how far each queue of the topic was consumed."""
