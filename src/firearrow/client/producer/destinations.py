"""The topics of a producer: where their messages go, found at the first message and kept up to date.

Whoever comes while a route is being asked for waits in order, and all of them go on before anybody who comes later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.pool import closed_error
from firearrow.client.connection.routes import template_route
from firearrow.client.errors import ClientError, FirearrowError, NoRouteError
from firearrow.client.namespaces import with_namespace
from firearrow.client.producer.routing import Sender, TopicRouting
from firearrow.client.producer.validation import check_sendable_topic
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC

Routed = Callable[[TopicRouting | None, Exception | None], None]

log = logging.getLogger("firearrow.client")

_SUSPECT_PAUSE_S: Final = 1.0


class RouteCache:
    def __init__(self, instance: ClientInstance, sender: Sender, namespace: str) -> None:
        self.known: dict[str, TopicRouting] = {}  # by the user's name of the topic
        self._instance = instance
        self._sender = sender
        self._namespace = namespace
        self._asking: dict[str, list[Routed]] = {}
        self._full_names: dict[str, str] = {}
        self._suspected: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, topic: str, *, full_name: str | None = None) -> TopicRouting:
        """The targets of a topic; `full_name` if its name on the brokers is not that in the namespace."""
        found = self.known.get(topic)
        if found is not None:
            return found
        future: asyncio.Future[TopicRouting] = asyncio.get_running_loop().create_future()

        def routed(targets: TopicRouting | None, problem: Exception | None) -> None:
            if not future.done():
                if targets is not None:
                    future.set_result(targets)
                else:
                    future.set_exception(problem or NoRouteError(topic))

        self.ask(topic, routed, full_name)
        return await future

    def ask(self, topic: str, routed: Routed, full_name: str | None = None) -> None:
        """Calls `routed` with the targets of a topic, or the reason why there are none. InvalidMessageError for a bad name."""
        waiting = self._asking.get(topic)
        if waiting is not None:
            waiting.append(routed)
            return
        check_sendable_topic(topic)
        self._full_names[topic] = full_name or with_namespace(topic, self._namespace)
        self._asking[topic] = [routed]
        self._run(self._find(topic))

    def full_names(self) -> set[str]:
        """The topics in use, by their names on the brokers."""
        return {self._full_names[topic] for topic in self.known}

    def route_changed(self, full_name: str) -> None:
        route = self._instance.known_route(full_name)
        for topic, targets in self.known.items():
            if route is not None and self._full_names[topic] == full_name:
                try:
                    targets.update(route)
                except ClientError as error:
                    log.warning("%s", error)

    def suspect(self, topic: str) -> None:
        """A route led nowhere: asks again, but not more often than once a second."""
        now = asyncio.get_running_loop().time()
        if topic in self.known and now >= self._suspected.get(topic, 0.0):
            self._suspected[topic] = now + _SUSPECT_PAUSE_S
            self._run(self._refresh(topic))

    async def settled(self, timeout_s: float | None = None) -> None:
        """Returns when no message waits for a route."""
        if self._asking:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    def close(self) -> None:
        self.known.clear()
        for task in list(self._tasks):
            task.cancel()

    async def _find(self, topic: str) -> None:
        targets: TopicRouting | None = None
        problem: Exception | None = None
        try:
            targets = await self._new_targets(topic, self._full_names[topic])
        except asyncio.CancelledError:
            problem = closed_error("producer")
            raise
        except Exception as error:
            problem = error
        finally:
            if targets is not None:
                self.known[topic] = targets
            for routed in self._asking.pop(topic):
                routed(targets, problem)

    async def _new_targets(self, topic: str, full_name: str) -> TopicRouting:
        try:
            return TopicRouting(self._sender, topic, await self._instance.route(full_name))
        except NoRouteError as error:
            if not error.asked:
                raise
            try:
                template = await self._instance.route(AUTO_CREATE_TOPIC_KEY_TOPIC)
            except NoRouteError:
                raise error from None
        return TopicRouting(self._sender, topic, template_route(full_name, template), is_template=True)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._instance.route(self._full_names[topic], refresh=True)
        except FirearrowError as error:
            log.debug("the route of %s stays as it was: %s", topic, error)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
