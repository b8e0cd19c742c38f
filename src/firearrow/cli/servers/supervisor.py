"""`firearrow up --brokers N`: a name server in this process and N broker processes.

One broker uses one core, so a machine with N cores runs N of them, each with its own ports and directory. This process starts
them, announces that all are ready, restarts a broker that dies, and stops them all.

- If a broker cannot start, the others are stopped and the exit code is 1.
- A broker that dies later is restarted on the same port after a delay that grows while it keeps dying.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

from firearrow.cli.command import fail
from firearrow.cli.servers.child import ChildError, ChildServer, write_config
from firearrow.cli.servers.config import PORTS_APART, UpOptions, UpSettings, broker_values, durability, naming_the_option
from firearrow.cli.servers.ready_file import ServerReady, announce
from firearrow.namesrv.server import NameServer

STOP_S = 1.7
FIRST_DELAY_S = 1.0
MAX_DELAY_S = 30.0
STABLE_S = 60.0  # a broker that ran this long did not fail on start-up

log = logging.getLogger("firearrow.cli")


async def up_with_processes(options: UpOptions, settings: UpSettings, data: Path, stop: asyncio.Event) -> int:
    namesrv = NameServer(settings.namesrv)
    with naming_the_option("--namesrv-port"):
        await namesrv.start()
    metrics_port = settings.broker.metrics_prom_exporter_port
    options = options._replace(settings=[*options.settings, *settings.shared_values().items()])
    children = [BrokerProcess(index, options, namesrv.address, data, metrics_port) for index in range(options.brokers)]
    try:
        try:
            await asyncio.gather(*(child.start() for child in children))
        except ChildError as error:
            fail(str(error))
            return 1
        ready = ServerReady(namesrv.address, [(c.name, c.address) for c in children], str(data), durability(settings.store))
        announce(ready, options.ready_file)
        watchers = [asyncio.ensure_future(child.restart_forever()) for child in children]
        await stop.wait()
        for watcher in watchers:
            watcher.cancel()
        await asyncio.wait(watchers)
        return 0
    finally:
        await asyncio.gather(*(child.stop() for child in children))
        await namesrv.stop()


class BrokerProcess(ChildServer):
    """A broker as a child process."""

    def __init__(self, index: int, options: UpOptions, namesrv: str, data: Path, metrics_port: int) -> None:
        super().__init__(f"broker-{chr(ord('a') + index)}")
        self.address = ""
        self._port = options.broker_port + index * PORTS_APART if options.broker_port else 0
        self._metrics_port = metrics_port + index if metrics_port else 0
        self._namesrv = namesrv
        self._host = options.host
        self._data = data / self.name
        self._config = data / f"{self.name}.conf"
        self._settings = options.settings
        self._started_s = 0.0

    async def start(self) -> None:
        """Start the process and wait until the broker is ready. Raises ChildError if the process ends before."""
        self._started_s = asyncio.get_running_loop().time()
        values = broker_values(self.name, self._host, self._port, self._data) | dict(self._settings)
        values["metricsPromExporterPort"] = str(self._metrics_port)
        write_config(self._config, values)
        ready = await self._start("broker", "-c", str(self._config), "-n", self._namesrv)
        self.address = ready["brokers"][0]
        self._port = int(self.address.rpartition(":")[2])

    async def restart_forever(self) -> None:
        """Restart the process whenever it ends."""
        delay_s = FIRST_DELAY_S
        while True:
            code = await self.wait()
            if asyncio.get_running_loop().time() - self._started_s > STABLE_S:
                delay_s = FIRST_DELAY_S
            log.error("%s exited with code %d; restarting it in %.0f s", self.name, code, delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_DELAY_S)
            try:
                await self.start()
                log.info("%s is running again at %s", self.name, self.address)
            except (ChildError, OSError) as error:  # OSError: the disk is full, or the system has no room for a process
                log.error("%s cannot start: %s", self.name, error)

    async def stop(self) -> None:
        if not await self._end(signal.SIGTERM, STOP_S):
            log.error("%s did not stop within %.1f s and was killed", self.name, STOP_S)
