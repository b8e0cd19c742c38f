"""Where the messages of a topic can go, with everything about a request that does not change from message to message.

A target is one queue at its broker's master. The header of a send request is JSON text with places for what varies; filling them
in is one formatting operation, about a tenth of what building and dumping the header would cost:

    {"code":310,"extFields":{"a":group,"b":topic,"c":"TBW102","d":"4","e":queue,"f":flags,"g":born,"h":flag,"i":properties,
     "j":"0","k":"false","m":is a batch,"n":broker name[,signature]},"flag":0,"language":"PYTHON","opaque":n,...}
"""

from __future__ import annotations

import struct
from typing import Final

import orjson

from firearrow.client.connection.routes import DEFAULT_TOPIC_QUEUES, MASTER, TopicRoute
from firearrow.client.connection.signing import Signer
from firearrow.client.errors import ClientError, InvalidMessageError
from firearrow.client.message import MessageQueue
from firearrow.client.producer.queue_choice import RoundRobin
from firearrow.wire.codes import VERSION, RequestCode
from firearrow.wire.names import AUTO_CREATE_TOPIC_KEY_TOPIC

SINGLE: Final = int(RequestCode.SEND_MESSAGE_V2)

_join_words = struct.Struct(">ii").pack
_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION


class SendTemplate:
    """One kind of send request (its code, one-way or not, batch or not) to one queue."""

    __slots__ = ("_header", "_signed_back", "_signed_front", "_signer")

    def __init__(
        self, code: int, group: str, queue: MessageQueue, language: str, signer: Signer | None, *, oneway: bool, batch: bool
    ) -> None:
        before = {"a": group, "b": queue.topic, "c": AUTO_CREATE_TOPIC_KEY_TOPIC, "d": str(DEFAULT_TOPIC_QUEUES)}
        before["e"] = str(queue.queue_id)
        after = {"j": "0", "k": "false", "m": "true" if batch else "false", "n": queue.broker_name}
        self._header = b"".join((
            b'{"code":%d,"extFields":' % code, _escaped(orjson.dumps(before)[:-1]), b',"f":"%d","g":"%d","h":"%d","i":%b,',
            _escaped(orjson.dumps(after)[1:-1]), b'%b},"flag":', b"2" if oneway else b"0", b',"language":"', language.encode(),
            b'","opaque":%d', _TAIL,
        ))  # fmt: skip
        self._signer = signer
        self._signed_front = "".join(before.values()).encode()
        self._signed_back = "".join(after.values()).encode()

    def frame(self, sys_flag: int, born_ms: int, flag: int, properties: str, opaque: int, body: bytes) -> bytes:
        """The whole request. TypeError if the properties are no text that can be written."""
        signature = b""
        if self._signer is not None:
            values = b"%b%d%d%d%b%b" % (
                self._signed_front, sys_flag, born_ms, flag, properties.encode(), self._signed_back,
            )  # fmt: skip
            signature = self._signer.json_fields(values, body)
        header = self._header % (sys_flag, born_ms, flag, orjson.dumps(properties), signature, opaque)
        length = len(header)
        return _join_words(4 + length + len(body), length) + header + body


class Sender:
    """Who sends: what all requests of a producer have in common."""

    __slots__ = ("group", "language", "signer")

    def __init__(self, group: str, language: str, signer: Signer | None) -> None:
        self.group = group
        self.language = language
        self.signer = signer


class Target:
    """One queue that can be sent to. `queue` is as users see it, without the namespace."""

    __slots__ = ("_forms", "_full_queue", "_sender", "address", "broker_name", "queue", "single")

    def __init__(self, sender: Sender, queue: MessageQueue, full_queue: MessageQueue, address: str) -> None:
        self.queue = queue
        self.broker_name = queue.broker_name
        self.address = address
        self._full_queue = full_queue
        self._sender = sender
        self._forms: dict[tuple[int, bool, bool], SendTemplate] = {}
        self.single = self.form(SINGLE)

    def form(self, code: int, *, oneway: bool = False, batch: bool = False) -> SendTemplate:
        found = self._forms.get((code, oneway, batch))
        if found is None:
            who = self._sender
            found = SendTemplate(code, who.group, self._full_queue, who.language, who.signer, oneway=oneway, batch=batch)
            self._forms[code, oneway, batch] = found
        return found

    def __repr__(self) -> str:
        return f"<Target {self.queue} at {self.address}>"


class TopicRouting:
    """All targets of a topic, sorted, and whose turn it is. The object stays the same when the route changes."""

    __slots__ = ("_sender", "by_queue", "is_template", "queues", "route", "targets", "topic", "turns")

    def __init__(self, sender: Sender, topic: str, route: TopicRoute, *, is_template: bool = False) -> None:
        self.topic = topic  # as users see it
        self.turns = RoundRobin()
        self._sender = sender
        self.update(route, is_template=is_template)

    def update(self, route: TopicRoute, *, is_template: bool = False) -> None:
        """Takes a new route. ClientError if nothing can be sent by it; then everything stays as it was."""
        targets = []
        for full_queue in route.write_queues():
            address = route.brokers.get(full_queue.broker_name, {}).get(MASTER)
            if address is not None:
                queue = MessageQueue(self.topic, full_queue.broker_name, full_queue.queue_id)
                targets.append(Target(self._sender, queue, full_queue, address))
        if not targets:
            raise ClientError(
                f"no queue of the topic {self.topic!r} can be written: none of its brokers {sorted(route.brokers)} has a master "
                "with write permission; is it stopped, or was its permission taken away?"
            )
        self.route = route
        self.is_template = is_template  # the topic does not exist: the first message creates it
        self.targets = targets
        self.queues = [target.queue for target in targets]
        self.by_queue = {target.queue: target for target in targets}

    def of_queue(self, queue: MessageQueue) -> Target:
        target = self.by_queue.get(queue)
        if target is None:
            raise InvalidMessageError(f"{queue} is none of the {len(self.queues)} queues that can be sent to: {self.queues}")
        return target


def _escaped(text: bytes) -> bytes:
    """`%` is allowed in names and means something in a format."""
    return text.replace(b"%", b"%%")
