"""Interfaces of producers and consumers towards their client instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.bodies.client import ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, SubscriptionData
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader


class ProducerMember(Protocol):
    """A producer of an instance. Methods are called on the event loop and must not block."""

    @property
    def group(self) -> str:
        """The group name with the namespace."""

    def topics(self) -> set[str]:
        """Return the topics whose routes are refreshed, with the namespace."""

    def route_changed(self, topic: str) -> None:
        """Handle a changed route of one of the topics."""

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        """Handle a transaction check of the broker at `address` (39)."""


class ConsumerMember(Protocol):
    """A consumer of an instance. Methods are called on the event loop; those without `async` must not block."""

    @property
    def group(self) -> str:
        """The group name with the namespace."""

    def subscriptions(self) -> list[SubscriptionData]:
        """Return the subscriptions; the routes of their topics are refreshed."""

    def heartbeat(self) -> ConsumerData:
        """Return the part of a heartbeat about this consumer."""

    def rebalance_soon(self) -> None:
        """Rebalance after a change of the members (40)."""

    def route_changed(self, topic: str) -> None:
        """Handle a changed route of a subscribed topic."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at offsets set by an operator (220), dropping held messages of these queues."""

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Consume one message for an operator (309)."""

    async def running_info(self) -> ConsumerRunningInfo:
        """Return the running info (307)."""

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumed offsets of a topic (221)."""
