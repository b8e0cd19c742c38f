"""A TCP proxy on another loopback address that hands on whole frames, and cuts a connection inside one when asked to.

A broker that is registered at 127.0.0.2 and listens at 127.0.0.1 is reached through a proxy at 127.0.0.2 with the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

HOST = "127.0.0.2"


class FrameProxy:
    """`cut_next` names the directions in which the next frame is cut in two; `cuts` counts what was done."""

    def __init__(self, port: int, target_host: str = "127.0.0.1") -> None:
        self.cuts = 0
        self._port = port
        self._target = target_host
        self._cut_next: set[str] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self, direction: str) -> None:
        """Returns when a frame `to broker` or `to client` was cut."""
        before = self.cuts
        self._cut_next.add(direction)
        while self.cuts == before:
            await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [writer]
        try:
            there_reader, there_writer = await asyncio.open_connection(self._target, self._port)
            writers.append(there_writer)
            ways = [
                asyncio.ensure_future(self._hand_on(reader, there_writer, "to broker")),
                asyncio.ensure_future(self._hand_on(there_reader, writer, "to client")),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the broker is not there: the client sees a connection that ends at once
        finally:
            for one in writers:
                one.close()
            self._tasks.discard(task)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readexactly(4)
                frame = head + await reader.readexactly(int.from_bytes(head))
                if direction in self._cut_next:
                    self._cut_next.discard(direction)
                    writer.write(frame[: len(frame) // 2])
                    await writer.drain()
                    self.cuts += 1
                    return
                writer.write(frame)
                await writer.drain()
