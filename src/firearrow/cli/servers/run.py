"""`firearrow up`, `namesrv` and `broker`: start servers, announce that they are ready, stop them on SIGTERM or SIGINT.

A server that cannot start prints one line on standard error and exits with code 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import click

from firearrow.cli.arguments import DEFAULT_DATA, PAIR, PORT, ClusterForm, Number
from firearrow.cli.command import CONTEXT, FAILURE, Function, Group, LazyCommand, at_most_one, explain, fail, log_level_option
from firearrow.cli.servers.config import (
    PORTS_APART,
    UpOptions,
    UpSettings,
    broker_settings,
    durability,
    namesrv_settings,
    naming_the_option,
    reject_form_settings,
    up_settings,
)
from firearrow.cli.servers.data_dir import DataDir, DataDirError
from firearrow.cli.servers.ready_file import ServerReady, announce
from firearrow.escaping import log_to_stderr
from firearrow.net.address import parse_address_list
from firearrow.net.event_loop import run as run_loop
from firearrow.net.limits import raise_descriptor_limit
from firearrow.store.errors import StoreError

if TYPE_CHECKING:
    from firearrow.broker.server import Broker

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MAX_BROKERS: Final = 26  # broker-a to broker-z

BROKER_COMMANDS: Final = {
    "list": LazyCommand("operator.broker:list_brokers", "List brokers with their rates and disk usage."),
    "status": LazyCommand("operator.broker:show_status", "Show the runtime information of a broker."),
    "stats": LazyCommand("operator.broker:show_statistics", "Show a statistic of the last minute, hour and day."),
    "replication": LazyCommand("operator.broker:show_replication", "Show the replication progress of a master's slaves."),
    "clean": LazyCommand("operator.broker:clean", "Delete expired files."),
    "wipe": LazyCommand("operator.broker:wipe", "Tell clients not to send to a broker."),
    "allow": LazyCommand("operator.broker:allow", "Tell clients that they may send to a broker again."),
    "rejoin": LazyCommand("operator.member_directory:rejoin", "Let a member with a restored directory catch up before it votes."),
    "seed": LazyCommand(
        "operator.member_directory:seed", "Continue a group that has lost a majority with the log of one member."
    ),
}


def server_options(function: Function) -> Function:
    ready_file = click.option(
        "--ready-file",
        metavar="FILE",
        help="Write addresses and pid there as JSON when all ports are open; -: to standard output.",
    )
    settings = click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, type=PAIR, help="A setting by Apache's key; repeatable."
    )
    return settings(ready_file(log_level_option("info")(function)))


stop_with_parent_option = click.option("--stop-with-parent", is_flag=True, hidden=True)


def _broker_port(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value in (1, 2):
        raise click.BadParameter(f"{value} leaves no room for the fast port, two below it; expected 0, or 3 to 65535")
    return value


@click.command(context_settings=CONTEXT, epilog="Example: firearrow up --data /srv/firearrow --set fileReservedTime=24")
@click.option("--data", metavar="DIR", default=DEFAULT_DATA, show_default=True, help="Data directory.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0: all.")
@click.option("--namesrv-port", metavar="PORT", type=PORT, default=9876, show_default=True, help="0: any free port.")
@click.option(
    "--broker-port",
    metavar="PORT",
    type=PORT,
    default=10911,
    show_default=True,
    callback=_broker_port,
    help="More brokers are 10 apart; 0: any.",
)
@click.option("--brokers", type=Number(1, MAX_BROKERS), help="Number of broker processes.  [default: 1]")
@click.option("--cluster", metavar="FORM", type=ClusterForm(), help=f"A replicated cluster: {', '.join(ClusterForm().choices)}.")
@server_options
def up(brokers: int | None, log_level: str, **parameters: Any) -> int:
    """Start a name server and a broker in one process.

    With --brokers N, start N broker processes. With --cluster FORM, start a cluster of processes for trying out failures with
    `firearrow cluster kill|stop|start|status`.
    """
    at_most_one(brokers=brokers, cluster=parameters["cluster"])
    options = UpOptions(brokers=brokers or 1, **parameters)
    return _serve(lambda: _up(options), log_level)


@click.command(context_settings=CONTEXT)
@click.option("-c", "--config", metavar="FILE", help="Property file, as Apache's namesrv.conf.")
@server_options
@stop_with_parent_option
def namesrv(
    config: str | None, settings: list[tuple[str, str]], ready_file: str | None, stop_with_parent: bool, log_level: str
) -> int:
    """Start a name server."""
    return _serve(lambda: _namesrv(config, settings, ready_file, stop_with_parent), log_level)


@click.group(cls=Group, lazy=BROKER_COMMANDS, invoke_without_command=True)
@click.option("-c", "--config", metavar="FILE", help="Property file, as Apache's broker.conf.")
@click.option("-n", "--namesrv", metavar="ADDR;ADDR", help="Name servers. Default: namesrvAddr of the file, or $NAMESRV_ADDR.")
@server_options
@stop_with_parent_option
@click.pass_context
def broker(
    ctx: click.Context,
    config: str | None,
    namesrv: str | None,
    settings: list[tuple[str, str]],
    ready_file: str | None,
    stop_with_parent: bool,
    log_level: str,
) -> int:
    """Start a broker. With a subcommand, inspect running brokers instead."""
    if ctx.invoked_subcommand is not None:
        if config or namesrv or settings or ready_file:
            raise click.UsageError(f"options of a broker to start do not apply here; put them after {ctx.invoked_subcommand}")
        return 0
    return _serve(lambda: _broker(config, settings, namesrv, ready_file, stop_with_parent), log_level)


def _serve(server: Callable[[], Coroutine[Any, Any, int]], log_level: str) -> int:
    log_to_stderr(LOG_FORMAT, log_level)
    raise_descriptor_limit()
    try:
        return run_loop(server())
    except (OSError, ValueError, StoreError, DataDirError) as error:  # SettingError is a ValueError
        fail(explain(error, ""))
        return FAILURE


async def _up(options: UpOptions) -> int:
    stop = stop_signal()
    last_port = options.broker_port + (options.brokers - 1) * PORTS_APART
    if last_port > 65535:
        raise ValueError(f"--broker-port {options.broker_port}: the last of {options.brokers} brokers would use port {last_port}")
    if options.cluster is not None:
        reject_form_settings(options.cluster, dict(options.settings))
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


async def _up_in_one_process(options: UpOptions, settings: UpSettings, stop: asyncio.Event) -> int:
    from firearrow.broker.server import Broker
    from firearrow.ha.factory import create_replication
    from firearrow.namesrv.server import NameServer

    namesrv = NameServer(settings.namesrv)
    with naming_the_option("--namesrv-port"):
        await namesrv.start()
    try:
        broker = Broker(settings.broker, settings.store, namesrv_addrs=[namesrv.address], replication=create_replication)
        with naming_the_option("--broker-port"):
            await broker.start()
        try:
            announce(_ready(broker, namesrv.address), options.ready_file)
            await stop.wait()
        finally:
            await broker.stop()
    finally:
        await namesrv.stop()
    return 0


async def _namesrv(config: str | None, settings: list[tuple[str, str]], ready_file: str | None, stop_with_parent: bool) -> int:
    from firearrow.namesrv.server import NameServer

    stop = stop_signal()
    if stop_with_parent:
        _stop_at_end_of_input(stop)
    server = NameServer(namesrv_settings(config, settings))
    with naming_the_option("--namesrv-port" if stop_with_parent else "--set listenPort=PORT"):
        await server.start()
    try:
        announce(ServerReady(namesrv=server.address), ready_file)
        await stop.wait()
    finally:
        await server.stop()
    return 0


async def _broker(
    config: str | None, pairs: list[tuple[str, str]], namesrv: str | None, ready_file: str | None, stop_with_parent: bool
) -> int:
    from firearrow.broker.server import Broker
    from firearrow.ha.factory import create_replication

    stop = stop_signal()
    if stop_with_parent:
        _stop_at_end_of_input(stop)
    settings, store_settings = broker_settings(config, pairs, namesrv)
    addresses = parse_address_list(settings.namesrv_addr or "")
    if not addresses:
        print("firearrow: warning: no name server given (-n or namesrvAddr): clients will not find this broker", file=sys.stderr)
    server = Broker(settings, store_settings, namesrv_addrs=addresses, replication=create_replication)
    with naming_the_option("--broker-port" if stop_with_parent else "--set listenPort=PORT"):
        await server.start()
    try:
        announce(_ready(server, ";".join(addresses) or None), ready_file)
        await stop.wait()
    finally:
        await server.stop()
    return 0


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    """Stop when the parent process ends: it holds the other end of the pipe that is standard input."""
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    os.set_blocking(0, False)
    loop.add_reader(0, on_readable)


def _ready(broker: Broker, namesrv: str | None) -> ServerReady:
    return ServerReady(
        namesrv=namesrv,
        brokers=[(broker.settings.broker_name, broker.advertised)],
        data=os.path.abspath(broker.store_settings.store_path_root_dir),
        flush=durability(broker.store_settings),
    )
