"""Network faults for tests.

    cut          abort connections now
    half_frame   the next frame arrives half, then its connection is aborted
    duplicate    the next frames arrive twice
    lose         the next frames do not arrive
    delay        everything arrives later, until `clear`
    refuse       new connections are refused, until `clear`

`at` names the server ("broker-a", "name-server-a"); None means all servers. `towards` is the direction: "server" (requests) or
"client" (responses, and the brokers' requests to clients). `codes` selects requests by code; responses carry their result
instead.

Faults survive a restart of the broker. They require connections without sockets, except `cut`. All methods may be called from any
thread and from coroutines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeVar

from firearrow.net.connection import Connection
from firearrow.net.in_process import MemoryListener, MemoryTransport
from firearrow.testing.clock import running_loop
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import FrameDecoder

Towards = Literal["server", "client"]
Kind = Literal["half", "twice", "lost"]
T = TypeVar("T")
_LENGTH_BYTES = 4


class Faults:
    """The network faults of a cluster."""

    def __init__(self, connections: Callable[[str | None], set[Connection]], *, sockets: bool) -> None:
        self._connections = connections
        self._sockets = sockets
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, list[MemoryListener]] = {}
        self._delays: list[tuple[str | None, bool, float]] = []
        self._refusals: list[str | None] = []
        self._once: list[_Once] = []

    def cut(self, at: str | None = None) -> int:
        """Abort the open connections. Return their number."""

        def cut() -> int:
            connections = self._connections(at)
            for conn in connections:
                conn.abort()
            return len(connections)

        return self._on_loop(cut)

    def delay(self, ms: float, at: str | None = None, *, towards: Towards | None = None) -> None:
        """Delay what is sent from now on, in real time. `towards="client"` simulates a slow server."""
        ways = [way for way in (True, False) if towards is None or (towards == "server") == way]
        self._change(lambda: self._delays.extend((at, way, ms / 1000) for way in ways))

    def refuse(self, at: str | None = None) -> None:
        """Refuse new connections."""
        self._change(lambda: self._refusals.append(at))

    def half_frame(self, at: str | None = None, *, towards: Towards = "server", codes: Collection[int] | None = None) -> None:
        """Deliver half of the next frame, then abort its connection."""
        self._next("half", 1, at, towards, codes)

    def duplicate(
        self, count: int = 1, at: str | None = None, *, towards: Towards = "server", codes: Collection[int] | None = None
    ) -> None:
        """Deliver the next `count` frames twice."""
        self._next("twice", count, at, towards, codes)

    def lose(
        self, count: int = 1, at: str | None = None, *, towards: Towards = "server", codes: Collection[int] | None = None
    ) -> None:
        """Drop the next `count` frames. The connection stays open."""
        self._next("lost", count, at, towards, codes)

    def clear(self) -> None:
        """Remove all faults."""

        def clear() -> None:
            self._delays.clear()
            self._refusals.clear()
            self._once.clear()

        self._change(clear)

    # For the cluster

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def attach(self, name: str, listeners: list[MemoryListener]) -> None:
        """Register the listeners of a server that has started."""
        self._listeners[name] = listeners
        self._apply()

    # Internals

    def _next(self, kind: Kind, count: int, at: str | None, towards: Towards, codes: Collection[int] | None) -> None:
        rule = _Once(kind, count, at, towards == "server", None if codes is None else frozenset(codes))
        self._change(lambda: self._once.append(rule))

    def _change(self, change: Callable[[], None]) -> None:
        if self._sockets:
            raise RuntimeError("this fault requires connections without sockets; create the cluster with sockets=False")

        def changed() -> None:
            change()
            self._apply()

        self._on_loop(changed)

    def _apply(self) -> None:
        for name, listeners in self._listeners.items():
            for listener in listeners:
                for way in (True, False):
                    listener.delay_s[way] = sum(s for at, to, s in self._delays if at in (None, name) and to == way)
                listener.refusing = any(at in (None, name) for at in self._refusals)
                listener.tap = self._tap(name) if any(rule.at in (None, name) for rule in self._once) else None

    def _tap(self, name: str) -> Callable[[MemoryTransport, bytes], None]:
        def tap(transport: MemoryTransport, data: bytes) -> None:
            for frame in _frames(data):
                rule = self._rule_for(name, transport.to_server, frame)
                if rule is None:
                    transport.deliver(frame)
                elif rule.kind == "twice":
                    transport.deliver(frame)
                    transport.deliver(frame)
                elif rule.kind == "half":
                    transport.deliver(frame[: len(frame) // 2])
                    # Later, because an immediate abort would discard the half frame.
                    asyncio.get_running_loop().call_later(0.002, transport.abort)
                    return

        return tap

    def _rule_for(self, name: str, to_server: bool, frame: bytes) -> _Once | None:
        for rule in self._once:
            if rule.at in (None, name) and rule.to_server == to_server and (rule.codes is None or _code(frame) in rule.codes):
                rule.left -= 1
                if rule.left <= 0:
                    self._once.remove(rule)
                    self._apply()
                return rule
        return None

    def _on_loop(self, function: Callable[[], T]) -> T:
        loop = self._loop
        if loop is None:
            raise RuntimeError("the cluster is not running: start it before injecting faults")
        if running_loop() is loop:
            return function()

        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), loop).result()


@dataclass
class _Once:
    kind: Kind
    left: int
    at: str | None
    to_server: bool
    codes: frozenset[int] | None


def _frames(data: bytes) -> list[bytes]:
    """Split a write into frames. Every write consists of whole frames."""
    frames = []
    while data:
        size = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


def _code(frame: bytes) -> int | None:
    try:
        (command,) = FrameDecoder().feed(frame)
    except (ProtocolError, ValueError):
        return None
    return command.code
