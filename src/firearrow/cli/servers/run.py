"""What the commands do: start the parts, say that they are ready, wait for the signal to stop, stop.

SIGTERM and SIGINT are the signal to stop. What cannot start is one line on standard error and exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from firearrow.cli.servers.config import (
    PORTS_APART,
    UpSettings,
    broker_settings,
    durability,
    namesrv_settings,
    refuse_owned_by_form,
    up_settings,
)
from firearrow.cli.servers.data_dir import DataDir, DataDirError
from firearrow.cli.servers.ready_file import ServerReady, announce
from firearrow.net.address import parse_address_list
from firearrow.net.event_loop import run as run_loop
from firearrow.store.errors import StoreError

if TYPE_CHECKING:
    from firearrow.broker.server import Broker

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO, stream=sys.stderr)
    command = {"up": up, "namesrv": namesrv, "broker": broker}[options.command]
    try:
        return run_loop(command(options))
    except (OSError, ValueError, StoreError, DataDirError) as error:  # SettingError is a ValueError
        print(f"firearrow: {_one_line(error)}", file=sys.stderr)
        return 1


async def up(options: argparse.Namespace) -> int:
    stop = stop_signal()
    last_port = options.broker_port + (options.brokers - 1) * PORTS_APART
    if last_port > 65535:
        raise ValueError(
            f"--broker-port {options.broker_port}: the last of {options.brokers} brokers would be on port {last_port}"
        )
    if options.cluster is not None:
        refuse_owned_by_form(options.cluster, dict(options.settings))
    directory = DataDir(options.data)
    settings = up_settings(directory.path, options.host, options.namesrv_port, options.broker_port, options.settings)
    directory.acquire(options.brokers, options.cluster)
    try:
        if options.cluster is not None:
            from firearrow.cli.local_cluster.run import up_cluster

            return await up_cluster(options, settings, directory.path, stop)
        if options.brokers == 1:
            return await _up_in_one_process(options, settings, stop)
        from firearrow.cli.servers.supervisor import up_with_processes

        return await up_with_processes(options, settings, directory.path, stop)
    finally:
        directory.release()


async def _up_in_one_process(options: argparse.Namespace, settings: UpSettings, stop: asyncio.Event) -> int:
    from firearrow.broker.server import Broker
    from firearrow.ha.factory import static_replication
    from firearrow.namesrv.server import NameServer

    namesrv = NameServer(settings.namesrv)
    await namesrv.start()
    try:
        broker = Broker(settings.broker, settings.store, namesrv_addrs=[namesrv.address], replication=static_replication)
        await broker.start()
        try:
            announce(_ready(broker, namesrv.address), options.ready_file)
            await stop.wait()
        finally:
            await broker.stop()
    finally:
        await namesrv.stop()
    return 0


async def namesrv(options: argparse.Namespace) -> int:
    from firearrow.namesrv.server import NameServer

    stop = stop_signal()
    if options.stop_with_parent:
        _stop_at_end_of_input(stop)
    server = NameServer(namesrv_settings(options.config, options.settings))
    await server.start()
    try:
        announce(ServerReady(namesrv=server.address), options.ready_file)
        await stop.wait()
    finally:
        await server.stop()
    return 0


async def broker(options: argparse.Namespace) -> int:
    from firearrow.broker.server import Broker
    from firearrow.ha.factory import static_replication

    stop = stop_signal()
    if options.stop_with_parent:
        _stop_at_end_of_input(stop)
    settings, store_settings = broker_settings(options.config, options.settings, options.namesrv)
    addresses = parse_address_list(settings.namesrv_addr or "")
    if not addresses:
        print(
            "firearrow: warning: no name server was given (-n or namesrvAddr): clients will not find this broker", file=sys.stderr
        )
    server = Broker(settings, store_settings, namesrv_addrs=addresses, replication=static_replication)
    await server.start()
    try:
        announce(_ready(server, ";".join(addresses) or None), options.ready_file)
        await stop.wait()
    finally:
        await server.stop()
    return 0


def stop_signal() -> asyncio.Event:
    """Set when the process is asked to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    """The parent holds the other end of our standard input; when it is gone, however it went, so are we."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    os.set_blocking(0, False)
    loop.add_reader(0, readable)


def _ready(broker: Broker, namesrv: str | None) -> ServerReady:
    return ServerReady(
        namesrv=namesrv,
        brokers=[(broker.settings.broker_name, broker.advertised)],
        data=os.path.abspath(broker.store_settings.store_path_root_dir),
        flush=durability(broker.store_settings),
    )


def _one_line(error: Exception) -> str:
    # OSError's own text is "[Errno 98] ..."; ours say it better.
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {text}"
    return " ".join(text.split()) or type(error).__name__
