"""The base of push and pull consumers: group, subscriptions and lifecycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.consumer.allocation import AllocationStrategy, Averagely
from firearrow.client.consumer.queue_offsets import StartFrom, check_start_from, consume_from_where
from firearrow.client.consumer.rebalance import Rebalancer
from firearrow.client.consumer.subscription import Expression, Subscription, subscription
from firearrow.client.errors import ClosedError
from firearrow.client.hooks import ConsumeHook
from firearrow.client.lifecycle import AsyncClient
from firearrow.client.namespaces import with_namespace
from firearrow.client.options import NameServers, client_options
from firearrow.client.trace.hook import Trace
from firearrow.clock import wall_ms
from firearrow.wire.bodies.client import ConsumerData, SubscriptionData
from firearrow.wire.names import check_group, check_topic


@dataclass(slots=True)
class RunningConsumer:
    """The state of a consumer between start and close."""

    instance: ClientInstance
    rebalance: Rebalancer
    trace: Trace | None


R = TypeVar("R", bound=RunningConsumer)


class GroupConsumer(AsyncClient, Generic[R]):
    """A member of a consumer group. The public methods are called by the client instance (`ConsumerMember`)."""

    def __init__(
        self,
        name_server: NameServers,
        group: str,
        start_from: StartFrom,
        allocation: AllocationStrategy | None,
        hooks: Sequence[ConsumeHook],
        options: dict[str, Any],
    ) -> None:
        check_group(group)
        check_start_from(start_from)
        self._options = client_options(name_server, **options)
        self._group = with_namespace(group, self._options.namespace)
        self._start_from: StartFrom = start_from
        self._allocation = allocation or Averagely()
        self._hooks = tuple(hooks)
        self._subscriptions: dict[str, Subscription] = {}
        self._running: R | None = None
        self._closed = False

    @property
    def group(self) -> str:
        return self._group

    def subscriptions(self) -> list[SubscriptionData]:
        return [one.data for one in self._subscriptions.values()]

    def rebalance_soon(self) -> None:
        if self._running is not None:
            self._running.rebalance.request()

    def route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self.rebalance_soon()

    def _heartbeat(self, consume_type: str, message_model: str) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=consume_type,
            message_model=message_model,
            consume_from_where=consume_from_where(self._start_from),
            subscription_data_set=self.subscriptions(),
        )

    def _subscribe(self, topic: str, expression: Expression) -> None:
        check_topic(topic)
        name = with_namespace(topic, self._options.namespace)
        self._subscriptions[name] = subscription(name, expression, wall_ms())

    def _start_trace(self) -> tuple[Trace | None, tuple[ConsumeHook, ...]]:
        """Return the trace, if the options ask for one, and all hooks."""
        if not self._options.trace:
            return None, self._hooks
        trace = Trace(self._options, self._group, "CONSUME")
        return trace, (*self._hooks, trace)

    def _open(self) -> R:
        if self._running is None:
            when = "has been closed" if self._closed else "was not started; use `with` or call start()"
            raise ClosedError(f"this consumer of group {self._group!r} {when}")
        return self._running
