"""Brokers and name servers in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.record import decode_all
from firearrow.wire.signature import RequestSigner
from tests.support.ports import reserve_port

QUEUES = 4
COMMAND = str(Path(sys.executable).parent / "firearrow")


class ServerProcess:
    """A server process that keeps its port across restarts. `kind` is the command that starts it."""

    def __init__(self, kind: str, directory: Path, port: int, settings: Mapping[str, str]) -> None:
        self.address = f"127.0.0.1:{port}"
        self.log_path = directory / f"{kind}.log"
        self._kind = kind
        directory.mkdir()
        self._config = directory / f"{kind}.conf"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen([COMMAND, self._kind, "-c", str(self._config)], stdout=log, stderr=log)
        for _ in range(3000):
            with contextlib.suppress(OSError):
                await self._ping()
                return
            await asyncio.sleep(0.02)
        raise AssertionError(self.log_path.read_text())

    async def _ping(self) -> None:
        """Raise OSError if the server does not accept connections."""
        await (await Channel.connect(self.address)).close()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            if number != signal.SIGSTOP:
                self._process.wait(60)
                self._process = None


class NameServerProcess(ServerProcess):
    def __init__(self, directory: Path, **settings: str) -> None:
        port = reserve_port()
        values = {"bindAddress": "127.0.0.1", "listenPort": str(port), "kvConfigPath": str(directory / "kvConfig.json")}
        super().__init__("namesrv", directory, port, values | settings)


class Node(ServerProcess):
    """A broker process. The requests of this object are signed by `signer`."""

    def __init__(self, directory: Path, namesrv: str, signer: RequestSigner | None = None, **settings: str) -> None:
        port = reserve_port(-2, 1)
        self.store = directory / "store"
        values = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "listenPort": str(port), "namesrvAddr": namesrv}
        values |= {"storePathRootDir": str(self.store), "mappedFileSizeCommitLog": "1048576", "slaveSyncInterval": "200"}
        super().__init__("broker", directory, port, values | settings)
        self._signer = signer

    async def _ping(self) -> None:
        await self.end()

    async def call(self, code: int, ext: dict[str, object] | None = None) -> tuple[int, dict[str, str], bytes]:
        channel = await Channel.connect(self.address, signer=self._signer)
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
