"""Brokers in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.record import decode_all
from tests.support.ports import reserve_port

QUEUES = 4
COMMAND = [str(Path(sys.executable).parent / "firearrow"), "broker"]


class Node:
    """A broker process that keeps its port across restarts."""

    def __init__(self, directory: Path, namesrv: str, **settings: str) -> None:
        port = reserve_port(-2, 1)
        self.address = f"127.0.0.1:{port}"
        self.store = directory / "store"
        values = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "listenPort": str(port), "namesrvAddr": namesrv}
        values |= {"storePathRootDir": str(self.store), "mappedFileSizeCommitLog": "1048576", "slaveSyncInterval": "200"}
        directory.mkdir()
        self._config = directory / "broker.conf"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in (values | settings).items()))
        self.log_path = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, "-c", str(self._config)], stdout=log, stderr=log)
        for _ in range(3000):
            with contextlib.suppress(OSError):
                await self.end()
                return
            await asyncio.sleep(0.02)
        raise AssertionError(self.log_path.read_text())

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            if number != signal.SIGSTOP:
                self._process.wait(60)
                self._process = None

    async def call(self, code: int, ext: dict[str, object] | None = None) -> tuple[int, dict[str, str], bytes]:
        channel = await Channel.connect(self.address)
        try:
            answer = await channel.request(code, ext or {}, b"", timeout_ms=30_000)
        finally:
            await channel.close()
        return answer.code, {key: str(value) for key, value in answer.ext.items()}, answer.body

    async def end(self) -> int:
        _, _, body = await self.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(fastjson.loads(body)["table"]["commitLogMaxOffset"])

    async def bodies(self) -> list[list[bytes]]:
        """Return the messages of every queue of T."""
        found: list[list[bytes]] = []
        for queue_id in range(QUEUES):
            queue: list[bytes] = []
            while True:
                ext = {"consumerGroup": "G", "topic": "T", "queueId": queue_id, "queueOffset": len(queue), "maxMsgNums": 32}
                ext |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1}
                code, _, body = await self.call(RequestCode.PULL_MESSAGE, ext)
                if code != ResponseCode.SUCCESS:
                    break
                queue += [record.body for record in decode_all(body)]
            found.append(queue)
        return found

    def log(self, end: int) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((self.store / "commitlog").iterdir()))[:end]
