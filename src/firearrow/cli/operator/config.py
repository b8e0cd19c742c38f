"""`firearrow config ...`"""

from __future__ import annotations

import argparse

from firearrow.admin.aio import Admin
from firearrow.admin.errors import NotFoundError
from firearrow.cli.arguments import CommandGroup, pair
from firearrow.cli.asking import confirmed
from firearrow.cli.operator.broker import address_of
from firearrow.cli.terminal import Output


def add(verbs: CommandGroup) -> None:
    get = verbs.add("get", get_, "show settings of a broker or of the name servers", example="config get --broker broker-a flush")
    _add_whose(get)
    get.add_argument("like", metavar="TEXT", nargs="?", default="", help="whose key contains this, in any case")

    set_parser = verbs.add(
        "set",
        set_,
        "change settings while a broker or the name servers run",
        destroys=True,
        example="config set --broker broker-a fileReservedTime=48",
    )
    _add_whose(set_parser)
    set_parser.add_argument("values", metavar="KEY=VALUE", nargs="+", type=pair)

    kv_list = verbs.add("kv-list", kv_list_, "list the key-value configuration of a namespace")
    kv_list.add_argument("namespace", metavar="NAMESPACE")
    kv_get = verbs.add("kv-get", kv_get_, "show one value of the key-value configuration")
    kv_put = verbs.add("kv-put", kv_put_, "set a value of the key-value configuration", destroys=True)
    kv_delete = verbs.add("kv-delete", kv_delete_, "delete a value of the key-value configuration", destroys=True)
    for parser in (kv_get, kv_put, kv_delete):
        parser.add_argument("namespace", metavar="NAMESPACE")
        parser.add_argument("key", metavar="KEY")
    kv_put.add_argument("value", metavar="VALUE")


def _add_whose(parser: argparse.ArgumentParser) -> None:
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--broker", help="of this broker, by name or address")
    whose.add_argument("--namesrv", action="store_true", help="of the name servers")


async def get_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    if options.namesrv:
        configs = await admin.name_server_config()
    else:
        configs = {options.broker: await admin.broker_config(await address_of(admin, options.broker))}
    rows = [
        {"server": server, "key": key, "value": value}
        for server, config in configs.items()
        for key, value in sorted(config.items())
        if options.like.lower() in key.lower()
    ]
    out.rows(rows, ["server", "key", "value"] if len(configs) > 1 else ["key", "value"])


async def set_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    values = dict(options.values)
    told = ", ".join(f"{key}={value}" for key, value in values.items())
    whose = "the name servers" if options.namesrv else options.broker
    address = "" if options.namesrv else await address_of(admin, options.broker)
    if not confirmed(options, f"set {told} at {whose}"):
        return
    if options.namesrv:
        await admin.set_name_server_config(values)
    else:
        await admin.set_broker_config(address, values)
    out.done(f"set {told} at {whose}; a restart takes its file's settings again", server=whose, values=values)


async def kv_list_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    table = await admin.kv_list(options.namespace)
    out.rows([{"key": key, "value": value} for key, value in sorted(table.items())], ["key", "value"])


async def kv_get_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    value = await admin.kv_get(options.namespace, options.key)
    if value is None:
        raise NotFoundError(f"the namespace {options.namespace!r} has no key {options.key!r}")
    out.done(value, namespace=options.namespace, key=options.key, value=value)


async def kv_put_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    if not confirmed(options, f"set {options.key} of {options.namespace} to {options.value} at all name servers"):
        return
    await admin.kv_put(options.namespace, options.key, options.value)
    out.done(f"set {options.key} of {options.namespace}", namespace=options.namespace, key=options.key, value=options.value)


async def kv_delete_(admin: Admin, options: argparse.Namespace, out: Output) -> None:
    if not confirmed(options, f"delete {options.key} of {options.namespace} at all name servers"):
        return
    await admin.kv_delete(options.namespace, options.key)
    out.done(f"deleted {options.key} of {options.namespace}", namespace=options.namespace, key=options.key)
