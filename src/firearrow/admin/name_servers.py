"""Name servers: settings, key-value and order configuration, write permission of brokers. A change is made on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from firearrow.admin.cluster import ask_name_server, none_if_rejected, tell_name_servers
from firearrow.admin.errors import AdminError
from firearrow.client.connection.instance import ClientInstance
from firearrow.config.properties_file import format_properties, parse_properties
from firearrow.wire import fastjson
from firearrow.wire.bodies.route import KVTable
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


async def name_server_config(client: ClientInstance) -> dict[str, dict[str, str]]:
    """Return address -> settings of each name server."""
    configs = {}
    for address in client.options.name_servers:
        answer = await client.check(address, RequestCode.GET_NAMESRV_CONFIG)
        configs[address] = parse_properties(answer.body.decode(errors="replace"))
    return configs


async def set_name_server_config(client: ClientInstance, values: Mapping[str, str]) -> None:
    await tell_name_servers(client, RequestCode.UPDATE_NAMESRV_CONFIG, format_properties(dict(values)).encode())


async def kv_list(client: ClientInstance, namespace: str) -> dict[str, str]:
    """Return the entries of a namespace; empty if it does not exist."""
    request = ask_name_server(client, GetKVListByNamespaceRequestHeader(namespace=namespace))
    answer = await none_if_rejected(ResponseCode.QUERY_NOT_FOUND, request)
    return {} if answer is None else KVTable.from_json(fastjson.loads(answer.body)).table


async def kv_get(client: ClientInstance, namespace: str, key: str) -> str | None:
    """Return a value of the key-value configuration; None if it does not exist."""
    request = ask_name_server(client, GetKVConfigRequestHeader(namespace=namespace, key=key))
    answer = await none_if_rejected(ResponseCode.QUERY_NOT_FOUND, request)
    return None if answer is None else answer.ext.get("value")


async def kv_put(client: ClientInstance, namespace: str, key: str, value: str) -> None:
    await tell_name_servers(client, PutKVConfigRequestHeader(namespace=namespace, key=key, value=value))


async def kv_delete(client: ClientInstance, namespace: str, key: str) -> None:
    await tell_name_servers(client, DeleteKVConfigRequestHeader(namespace=namespace, key=key))


async def order_config(client: ClientInstance, topic: str) -> dict[str, int] | None:
    """Return broker -> queues of the order configuration of a topic; None if it has none."""
    text = await kv_get(client, ORDER_NAMESPACE, topic)
    return None if text is None else parse_order(text)


async def set_order_config(client: ClientInstance, topic: str, queues: Mapping[str, int]) -> None:
    """Set the number of queues that producers of a topic use on each broker, whether or not the queues exist."""
    if not queues or any(count < 1 for count in queues.values()):
        raise AdminError(f"the order configuration of {topic!r} is {dict(queues)}; expected brokers with one queue or more each")
    await kv_put(client, ORDER_NAMESPACE, topic, format_order(queues))


async def delete_order_config(client: ClientInstance, topic: str) -> None:
    await kv_delete(client, ORDER_NAMESPACE, topic)


def parse_order(text: str) -> dict[str, int]:
    """Parse `broker-a:4;broker-b:4`."""
    queues: dict[str, int] = {}
    for part in filter(None, text.split(";")):
        broker, _, count = part.strip().rpartition(":")
        if not broker or not count.isascii() or not count.isdigit() or int(count) < 1:
            raise AdminError(f"{part!r} is not of the form broker:queues; expected such parts, joined by semicolons")
        queues[broker] = int(count)
    return queues


def format_order(queues: Mapping[str, int]) -> str:
    return ";".join(f"{broker}:{count}" for broker, count in queues.items())


async def wipe_write_permission(client: ClientInstance, broker: str) -> dict[str, int]:
    """Remove the write permission of a broker until it is restored or the broker registers again.

    Returns name server -> number of changed topics.
    """
    answers = await tell_name_servers(client, WipeWritePermOfBrokerRequestHeader(broker_name=broker))
    counts = [WipeWritePermOfBrokerResponseHeader.decode(answer.ext).wipe_topic_count for answer in answers]
    return dict(zip(client.options.name_servers, counts, strict=True))


async def add_write_permission(client: ClientInstance, broker: str) -> dict[str, int]:
    """Undo `wipe_write_permission`. Returns name server -> number of changed topics."""
    answers = await tell_name_servers(client, AddWritePermOfBrokerRequestHeader(broker_name=broker))
    counts = [AddWritePermOfBrokerResponseHeader.decode(answer.ext).add_topic_count for answer in answers]
    return dict(zip(client.options.name_servers, counts, strict=True))
