"""A name server and brokers in one listener that answer as a test tells them to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from firearrow.net.server import Connection, Listener, serve
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response

Answer = Callable[[Connection, Command], None]


class FakeBroker:
    """Route requests are answered with `route`, heartbeats and goodbyes with 0, sends with what `answers` says, then success."""

    def __init__(self, name: str = "broker-a", *, queues: int = 1) -> None:
        self.name = name
        self.queues = queues
        self.seen: list[Command] = []
        self.conns: list[Connection] = []
        self.answers: deque[int | Answer] = deque()  # one for each send: a code, or what to do
        self.other: dict[int, Answer] = {}
        self.route: dict[str, Any] | None = None
        self.stored = 0
        self.something = asyncio.Event()
        self.listener: Listener | None = None

    async def start(self, port: int = 0) -> FakeBroker:
        self.listener = await serve(self, port=port)
        return self

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.close()

    @property
    def address(self) -> str:
        assert self.listener is not None
        return f"127.0.0.1:{self.listener.port}"

    @property
    def codes(self) -> list[int]:
        return [command.code for command in self.seen]

    @property
    def sends(self) -> list[Command]:
        return [command for command in self.seen if command.code in (310, 320, 325)]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.something.clear()
            await self.something.wait()

    def connected(self, conn: Connection) -> None:
        self.conns.append(conn)
        self.something.set()

    def disconnected(self, conn: Connection) -> None:
        self.conns.remove(conn)
        self.something.set()

    def received(self, conn: Connection, commands: list[Command]) -> None:
        for command in commands:
            self.seen.append(command)
            if command.code in self.other:
                self.other[command.code](conn, command)
            elif command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                self._answer_route(conn, command)
            elif command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
                self._answer_send(conn, command)
            elif not command.is_oneway:
                conn.write(encode_response(command, 0, None, {}))
        self.something.set()

    def store(self, conn: Connection, command: Command, code: int = 0) -> None:
        """Answers a send that was stored."""
        ext = {"msgId": f"{'7F000001':0<16}{self.stored:016X}", "queueId": command.ext["e"], "queueOffset": str(self.stored)}
        self.stored += 1
        conn.write(encode_response(command, code, None, ext))

    def _answer_send(self, conn: Connection, command: Command) -> None:
        if command.is_oneway:
            return
        answer = self.answers.popleft() if self.answers else 0
        if callable(answer):
            answer(conn, command)
        elif answer in (0, 10, 11, 12):
            self.store(conn, command, answer)
        else:
            conn.write(encode_response(command, answer, "as the test says", {}))

    def _answer_route(self, conn: Connection, command: Command) -> None:
        route = self.route if self.route is not None else route_to(self)
        if command.ext["topic"].startswith("missing"):
            conn.write(encode_response(command, ResponseCode.TOPIC_NOT_EXIST, "no such topic", {}))
        else:
            conn.write(encode_response(command, 0, None, {}, fastjson.dumps(route)))


def route_to(*brokers: FakeBroker, perm: int = 6, order: str | None = None) -> dict[str, Any]:
    queues = [
        {"brokerName": b.name, "perm": perm, "readQueueNums": b.queues, "topicSysFlag": 0, "writeQueueNums": b.queues}
        for b in brokers
    ]
    datas = [{"brokerAddrs": {"0": b.address}, "brokerName": b.name, "cluster": "C"} for b in brokers]
    route: dict[str, Any] = {"brokerDatas": datas, "filterServerTable": {}, "queueDatas": queues}
    return route if order is None else route | {"orderTopicConf": order}


def nothing(conn: Connection, command: Command) -> None:
    """Does not answer."""


def cut(conn: Connection, command: Command) -> None:
    conn.abort()
