"""`firearrow up --brokers N`: a name server here, N brokers as child processes.

One broker uses one core, so a machine with N cores runs N of them, each with its own ports and its own directory. This process
starts them, says that all are ready, starts one again that dies, and stops them all.

- A child that cannot start ends the whole start: the others are stopped, and the exit code is 1.
- A child that dies later is started again on the port it had, after a pause that grows while it keeps dying.
- Children hold the reading end of a pipe from here: when this process is gone, even by `kill -9`, they stop by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from firearrow.cli.servers.config import PORTS_APART, UpSettings, durability
from firearrow.cli.servers.ready_file import ServerReady, announce
from firearrow.namesrv.server import NameServer
from firearrow.net.address import WILDCARDS

STOP_S = 1.7
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0  # a child that ran for so long did not die of its start

log = logging.getLogger("firearrow.cli")


class ChildError(Exception):
    """A broker process ended before it was ready."""


async def up_with_processes(options: argparse.Namespace, settings: UpSettings, data: Path, stop: asyncio.Event) -> int:
    namesrv = NameServer(settings.namesrv)
    await namesrv.start()
    metrics_port = settings.broker.metrics_prom_exporter_port
    children = [BrokerProcess(index, options, namesrv.address, data, metrics_port) for index in range(options.brokers)]
    try:
        try:
            await asyncio.gather(*(child.start() for child in children))
        except ChildError as error:
            print(f"firearrow: {error}", file=sys.stderr)
            return 1
        ready = ServerReady(namesrv.address, [(c.name, c.address) for c in children], str(data), durability(settings.store))
        announce(ready, options.ready_file)
        keepers = [asyncio.ensure_future(child.keep()) for child in children]
        await stop.wait()
        for keeper in keepers:
            keeper.cancel()
        await asyncio.wait(keepers)
        return 0
    finally:
        await asyncio.gather(*(child.stop() for child in children))
        await namesrv.stop()


class BrokerProcess:
    def __init__(self, index: int, options: argparse.Namespace, namesrv: str, data: Path, metrics_port: int) -> None:
        self.name = f"broker-{chr(ord('a') + index)}"
        self.address = ""
        self._port = options.broker_port + index * PORTS_APART if options.broker_port else 0
        self._metrics_port = metrics_port + index if metrics_port else 0
        self._namesrv = namesrv
        self._host = options.host
        self._data = data / self.name
        self._settings: list[tuple[str, str]] = options.settings
        self._process: Process | None = None
        self._started_s = 0.0

    async def start(self) -> None:
        """Returns when the broker is ready; ChildError when it will not be."""
        self._started_s = asyncio.get_running_loop().time()
        self._process = process = await asyncio.create_subprocess_exec(*self._command(), stdin=PIPE, stdout=PIPE)
        assert process.stdout is not None
        line = await process.stdout.readline()
        try:
            self.address = json.loads(line)["brokers"][0]
        except (ValueError, KeyError, IndexError):
            code = await process.wait()
            raise ChildError(f"{self.name} ended with exit code {code} before it was ready") from None
        self._port = int(self.address.rpartition(":")[2])

    async def keep(self) -> None:
        """Waits for the process to end, and starts it again, for ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            assert self._process is not None
            code = await self._process.wait()
            if asyncio.get_running_loop().time() - self._started_s > STEADY_S:
                pause_s = FIRST_PAUSE_S
            log.error("%s ended with exit code %d; starting it again in %.0f s", self.name, code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            try:
                await self.start()
                log.info("%s is up again at %s", self.name, self.address)
            except ChildError as error:
                log.error("%s", error)

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            log.error("%s did not stop within %.1f s; it is killed", self.name, STOP_S)
            process.kill()
            await process.wait()

    def _command(self) -> list[str]:
        own = {
            "brokerName": self.name,
            "bindAddress": self._host,
            "listenPort": str(self._port),
            "storePathRootDir": str(self._data),
        }
        if self._host not in WILDCARDS:
            own["brokerIP1"] = self._host
        words = [sys.executable, "-m", "firearrow.cli", "broker", "-n", self._namesrv, "--ready-file", "-", "--stop-with-parent"]
        for key, value in {**own, **dict(self._settings), "metricsPromExporterPort": str(self._metrics_port)}.items():
            words += ["--set", f"{key}={value}"]
        return words
