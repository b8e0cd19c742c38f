"""Routing of messages: the queues of a topic, the choice among them, and the request templates for each queue.

A producer looks up the route of a topic at its first message (`RouteCache`) and keeps it up to date. Without an argument of the
caller, messages go to the queues in turn, starting at a random one; after a failure to another broker if there is one. With a
sharding key they go to the queue that Java's `SelectMessageQueueByHash` chooses for the same text.

A `Target` is one queue at its broker's master. The header of a send request is a JSON template; filling it in is one formatting
operation, about a tenth of the cost of building and dumping the header:

    {"code":310,"extFields":{"a":group,"b":topic,"c":"TBW102","d":"4","e":queue,"f":flags,"g":born,"h":flag,"i":properties,
     "j":"0","k":"false","m":is a batch,"n":broker name[,signature]},"flag":0,"language":"PYTHON","opaque":n,...}
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import orjson

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.connection.pool import closed_error
from firearrow.client.connection.routes import DEFAULT_TOPIC_QUEUES, MASTER, TopicRoute, template_route
from firearrow.client.connection.signing import Signer
from firearrow.client.errors import ClientError, FirearrowError, InvalidMessageError, NoRouteError
from firearrow.client.lifecycle import BackgroundTasks
from firearrow.client.message import Message, MessageQueue
from firearrow.client.namespaces import with_namespace
from firearrow.client.producer.fault_avoidance import FaultTable
from firearrow.client.producer.validation import check_sendable_topic
from firearrow.wire.codes import VERSION, RequestCode
from firearrow.wire.java_hash import hash_code
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC

Selector = Callable[[list[MessageQueue], Message], MessageQueue]


class HasBroker(Protocol):
    @property
    def broker_name(self) -> str: ...


T = TypeVar("T", bound=HasBroker)


class RoundRobin:
    """A round-robin position that starts at random."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = random.randrange(1 << 16)

    def choose(self, targets: Sequence[T], last_broker: str | None = None) -> T:
        """Return the next target, of another broker than `last_broker` if there is one."""
        index = self._next = self._next + 1
        count = len(targets)
        if last_broker is not None:
            for turn in range(count):
                target = targets[(index + turn) % count]
                if target.broker_name != last_broker:
                    self._next += turn
                    return target
        return targets[index % count]

    def choose_available(self, targets: Sequence[T], faults: FaultTable, now_ms: float, last_broker: str | None = None) -> T:
        """Return the next target of an available broker, else of a reachable one, else the one with the least penalty."""
        index = self._next = self._next + 1
        count = len(targets)
        in_turn = [targets[(index + turn) % count] for turn in range(count)]
        for good in (faults.available, faults.reachable):
            for target in in_turn:
                if target.broker_name != last_broker and good(target.broker_name, now_ms):
                    return target
        others = [target for target in in_turn if target.broker_name != last_broker] or in_turn
        return min(others, key=lambda target: faults.penalty(target.broker_name))


def by_sharding_key(count: int, key: str) -> int:
    """Return the index among `count` queues for a key."""
    return abs(hash_code(key)) % count


SINGLE: Final = int(RequestCode.SEND_MESSAGE_V2)
BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)

_join_words = struct.Struct(">ii").pack
_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION


class SendTemplate:
    """One kind of send request (its code, one-way or not) to one queue."""

    __slots__ = ("_header", "_signed_back", "_signed_front", "_signer")

    def __init__(self, code: int, sender: Sender, queue: MessageQueue, *, oneway: bool) -> None:
        before = {"a": sender.group, "b": queue.topic, "c": AUTO_CREATE_TOPIC_KEY_TOPIC, "d": str(DEFAULT_TOPIC_QUEUES)}
        before["e"] = str(queue.queue_id)
        after = {"j": "0", "k": "false", "m": "true" if code == BATCH else "false", "n": queue.broker_name}
        self._header = b"".join((
            b'{"code":%d,"extFields":' % code, _escaped(orjson.dumps(before)[:-1]), b',"f":"%d","g":"%d","h":"%d","i":%b,',
            _escaped(orjson.dumps(after)[1:-1]), b'%b},"flag":', b"2" if oneway else b"0", b',"language":"',
            sender.language.encode(), b'","opaque":%d', _TAIL,
        ))  # fmt: skip
        self._signer = sender.signer
        self._signed_front = "".join(before.values()).encode()
        self._signed_back = "".join(after.values()).encode()

    def frame(self, sys_flag: int, born_ms: int, flag: int, properties: str, opaque: int, body: bytes) -> bytes:
        """Encode a request. TypeError if the properties cannot be encoded."""
        signature = b""
        if self._signer is not None:
            values = b"%b%d%d%d%b%b" % (
                self._signed_front, sys_flag, born_ms, flag, properties.encode(), self._signed_back,
            )  # fmt: skip
            signature = self._signer.json_fields(values, body)
        header = self._header % (sys_flag, born_ms, flag, orjson.dumps(properties), signature, opaque)
        length = len(header)
        return _join_words(4 + length + len(body), length) + header + body


class Sender(NamedTuple):
    """The part that all requests of a producer share."""

    group: str
    language: str
    signer: Signer | None


class Target:
    """One writable queue. `queue` is as users see it, without the namespace."""

    __slots__ = ("_full_queue", "_sender", "_templates", "address", "broker_name", "queue", "single")

    def __init__(self, sender: Sender, queue: MessageQueue, full_queue: MessageQueue, address: str) -> None:
        self.queue = queue
        self.broker_name = queue.broker_name
        self.address = address
        self._full_queue = full_queue
        self._sender = sender
        self._templates: dict[tuple[int, bool], SendTemplate] = {}
        self.single = self.template(SINGLE)

    def template(self, code: int, *, oneway: bool = False) -> SendTemplate:
        found = self._templates.get((code, oneway))
        if found is None:
            found = self._templates[code, oneway] = SendTemplate(code, self._sender, self._full_queue, oneway=oneway)
        return found

    def __repr__(self) -> str:
        return f"<Target {self.queue} at {self.address}>"


class TopicRouting:
    """The sorted targets of a topic and the round-robin state. The object survives changes of the route."""

    __slots__ = ("_sender", "by_queue", "is_template", "queues", "route", "targets", "topic", "turns")

    def __init__(self, sender: Sender, topic: str, route: TopicRoute, *, is_template: bool = False) -> None:
        self.topic = topic  # as users see it
        self.turns = RoundRobin()
        self._sender = sender
        self.update(route, is_template=is_template)

    def update(self, route: TopicRoute, *, is_template: bool = False) -> None:
        """Replace the route. ClientError, without a change, if no queue of it is writable."""
        targets = []
        for full_queue in route.write_queues():
            address = route.brokers.get(full_queue.broker_name, {}).get(MASTER)
            if address is not None:
                queue = MessageQueue(self.topic, full_queue.broker_name, full_queue.queue_id)
                targets.append(Target(self._sender, queue, full_queue, address))
        if not targets:
            raise ClientError(
                f"the topic {self.topic!r} has no writable queue: none of its brokers {sorted(route.brokers)} has a master "
                "with write permission; start the master or grant write permission"
            )
        self.route = route
        self.is_template = is_template  # the topic does not exist: the first message creates it
        self.targets = targets
        self.queues = [target.queue for target in targets]
        self.by_queue = {target.queue: target for target in targets}

    def of_queue(self, queue: MessageQueue) -> Target:
        target = self.by_queue.get(queue)
        if target is None:
            raise InvalidMessageError(f"{queue} is not a writable queue of the topic; these are: {self.queues}")
        return target


Routed = Callable[[TopicRouting | None, Exception | None], None]

log = logging.getLogger("firearrow.client")

_SUSPECT_PAUSE_S: Final = 1.0


class RouteCache:
    """The routes of a producer's topics. Requests made while a route is being looked up are answered in order."""

    def __init__(self, instance: ClientInstance, sender: Sender, namespace: str) -> None:
        self.known: dict[str, TopicRouting] = {}  # by the user's name of the topic
        self._instance = instance
        self._sender = sender
        self._namespace = namespace
        self._requested: dict[str, list[Routed]] = {}
        self._full_names: dict[str, str] = {}
        self._suspected: dict[str, float] = {}
        self._tasks = BackgroundTasks()

    async def get(self, topic: str, *, full_name: str | None = None) -> TopicRouting:
        """Return the targets of a topic; `full_name` is its name on the brokers if that is not the one in the namespace."""
        found = self.known.get(topic)
        if found is not None:
            return found
        future: asyncio.Future[TopicRouting] = asyncio.get_running_loop().create_future()

        def routed(targets: TopicRouting | None, error: Exception | None) -> None:
            if not future.done():
                if targets is not None:
                    future.set_result(targets)
                else:
                    future.set_exception(error or NoRouteError(topic))

        self.request(topic, routed, full_name)
        return await future

    def request(self, topic: str, routed: Routed, full_name: str | None = None) -> None:
        """Call `routed` with the targets of a topic or with the error, in the order of the calls of `request`.

        InvalidMessageError for an invalid name.
        """
        waiting = self._requested.get(topic)
        if waiting is not None:
            waiting.append(routed)
            return
        check_sendable_topic(topic)
        self._full_names[topic] = full_name or with_namespace(topic, self._namespace)
        self._requested[topic] = [routed]
        self._tasks.start(self._find(topic))

    def full_names(self) -> set[str]:
        """Return the topics in use by their names on the brokers."""
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
        """Refresh the route of a topic after a failure, at most once a second."""
        now = asyncio.get_running_loop().time()
        if topic in self.known and now >= self._suspected.get(topic, 0.0):
            self._suspected[topic] = now + _SUSPECT_PAUSE_S
            self._tasks.start(self._refresh(topic))

    async def settled(self, timeout_s: float | None = None) -> None:
        """Wait until no message waits for a route."""
        if self._requested:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    def close(self) -> None:
        self.known.clear()
        self._tasks.cancel()

    async def _find(self, topic: str) -> None:
        targets: TopicRouting | None = None
        failure: Exception | None = None
        try:
            targets = await self._new_targets(topic, self._full_names[topic])
        except asyncio.CancelledError:
            failure = closed_error("producer")
            raise
        except Exception as error:  # noqa: BLE001 (raised to the waiting sends)
            failure = error
        finally:
            if targets is not None:
                self.known[topic] = targets
            for routed in self._requested.pop(topic):
                routed(targets, failure)

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
            log.debug("the route of %s cannot be refreshed: %s", topic, error)


def _escaped(text: bytes) -> bytes:
    """Escape `%`, which names may contain, for use in a format."""
    return text.replace(b"%", b"%%")
