"""`firearrow config`."""

from __future__ import annotations

import click

from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.cli.arguments import BROKER, PAIR
from firearrow.cli.command import Group, exactly_one, options
from firearrow.cli.operator.broker import address_of
from firearrow.cli.terminal import Output

config = Group("config")


server_options = options(
    click.option("--broker", type=BROKER, help="A broker, by name or address."),
    click.option("--name-servers", is_flag=True, help="All name servers."),
)


@config.admin_command("get", epilog="Example: firearrow config get --broker broker-a flush")
@click.argument("text", required=False, default="")
@server_options
async def get(admin: Admin, out: Output, text: str, broker: str | None, name_servers: bool) -> None:
    """Show settings whose key contains TEXT, ignoring case."""
    exactly_one(broker=broker, name_servers=name_servers)
    configs = (
        {broker: await admin.broker_config(await address_of(admin, broker))} if broker else await admin.name_server_config()
    )  # fmt: skip
    rows = [
        {"server": server, "key": key, "value": value}
        for server, settings in configs.items()
        for key, value in sorted(settings.items())
        if text.lower() in key.lower()
    ]
    out.rows(rows, ["server", "key", "value"] if len(configs) > 1 else ["key", "value"])


@config.admin_command("set", epilog="Example: firearrow config set --broker broker-a fileReservedTime=48", destructive=True)
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True, type=PAIR)
@server_options
async def set_settings(
    admin: Admin, out: Output, settings: tuple[tuple[str, str], ...], broker: str | None, name_servers: bool
) -> None:  # fmt: skip
    """Change settings of running servers. A restart reads the settings of the configuration file again."""
    exactly_one(broker=broker, name_servers=name_servers)
    values = dict(settings)
    text = ", ".join(f"{key}={value}" for key, value in values.items())
    server = broker or "all name servers"
    address = await address_of(admin, broker) if broker else ""
    if not out.confirmed(f"set {text} on {server}"):
        return
    if broker:
        await admin.set_broker_config(address, values)
    else:
        await admin.set_name_server_config(values)
    out.done(f"set {text} on {server} until the next restart", server=server, values=values)


@config.admin_command("kv-list")
@click.argument("namespace")
async def kv_list(admin: Admin, out: Output, namespace: str) -> None:
    """List the key-value configuration of a namespace."""
    table = await admin.kv_list(namespace)
    rows = [{"namespace": namespace, "key": key, "value": value} for key, value in sorted(table.items())]
    out.rows(rows, ["key", "value"])


@config.admin_command("kv-get")
@click.argument("namespace")
@click.argument("key")
async def kv_get(admin: Admin, out: Output, namespace: str, key: str) -> None:
    """Show a value of the key-value configuration."""
    value = await admin.kv_get(namespace, key)
    if value is None:
        raise NotFoundError(f"namespace {namespace!r} has no key {key!r}")
    out.done(value, namespace=namespace, key=key, value=value)


@config.admin_command("kv-put", destructive=True)
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
async def kv_put(admin: Admin, out: Output, namespace: str, key: str, value: str) -> None:
    """Set a value of the key-value configuration."""
    if out.confirmed(f"set {key} of {namespace} to {value} on all name servers"):
        await admin.kv_put(namespace, key, value)
        out.done(f"set {key} of {namespace}", namespace=namespace, key=key, value=value)


@config.admin_command("kv-delete", destructive=True)
@click.argument("namespace")
@click.argument("key")
async def kv_delete(admin: Admin, out: Output, namespace: str, key: str) -> None:
    """Delete a value of the key-value configuration."""
    if out.confirmed(f"delete {key} of {namespace} on all name servers"):
        await admin.kv_delete(namespace, key)
        out.done(f"deleted {key} of {namespace}", namespace=namespace, key=key)
