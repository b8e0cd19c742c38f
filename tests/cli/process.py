"""Commands as processes, ended with the test."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.frame import Command
from firearrow.wire.signature import RequestSigner

PATIENCE_S = 60.0
ANY_PORTS = ["--namesrv-port", "0", "--broker-port", "0"]


class Started:
    """A running `firearrow ...`. Standard error goes to a file, standard output is read line by line."""

    def __init__(self, words: list[str], tmp_path: Path, **env: str) -> None:
        self.log_path = tmp_path / f"stderr-{time.monotonic_ns()}.txt"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firearrow.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=tmp_path,
                env={**os.environ, **env},
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def line(self) -> str:
        """Return the next line of standard output; fail with the log after a timeout."""
        out = self.process.stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], PATIENCE_S)
        line = out.readline().decode() if readable else ""
        assert line, f"no output; exit code {self.process.poll()}; log:\n{self.log}"
        return line.rstrip("\n")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Return the exit code and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        return code, time.monotonic() - began

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


Start = Callable[..., Started]


def failed(words: list[str], tmp_path: Path) -> tuple[int, str]:
    """Return the exit code and standard error of a command that ends by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "firearrow.cli", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


def read_json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def call(
    address: str, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", signer: RequestSigner | None = None
) -> Command:
    async def once() -> Command:
        channel = await Channel.connect(address, signer=signer)
        try:
            return await channel.request(code, ext, body)
        finally:
            await channel.close()

    return asyncio.run(once())


def shared_signer(data: Path) -> RequestSigner:
    """Return a signer with the keys that the servers of `firearrow up` share."""
    keys = read_json(data / "admin_credentials.json")
    return RequestSigner(keys["accessKey"], keys["secretKey"])


def route(namesrv: str, topic: str) -> dict[str, Any]:
    answer = call(namesrv, 105, {"topic": topic})
    value: dict[str, Any] = fastjson.loads(answer.body) if answer.code == 0 else {}
    return value


def accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as sock:
        return sock.connect_ex((host, int(port))) == 0
