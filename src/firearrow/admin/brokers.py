"""State, settings, statistics and clean-up of brokers. `address` is `host:port`, as in `list_brokers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firearrow.admin.cluster import ask_broker, none_if_rejected
from firearrow.client.connection.instance import ClientInstance
from firearrow.config.properties_file import format_properties, parse_properties
from firearrow.wire.bodies.admin import BrokerStatsData, HARuntimeInfo
from firearrow.wire.bodies.route import KVTable
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.headers.admin import ViewBrokerStatsDataRequestHeader

STATISTICS: Final = (
    "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS", "BROKER_PUT_NUMS",
    "BROKER_GET_NUMS",
)  # fmt: skip
"""The key of TOPIC_... is a topic, of GROUP_... and SNDBCK_... `topic@group`, of BROKER_... the cluster's name."""

_CLEAN_TIMEOUT_MS: Final = 30_000


async def broker_status(client: ClientInstance, address: str) -> dict[str, str]:
    """Return the runtime information of a broker under Apache's names, such as putTps and commitLogDiskRatio."""
    status = (await ask_broker(client, address, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
    if "getTransferedTps" in status:  # its spelling before 5.0
        status.setdefault("getTransferredTps", status["getTransferedTps"])
    return status


async def broker_config(client: ClientInstance, address: str) -> dict[str, str]:
    """Return the settings of a broker."""
    answer = await client.check(address, RequestCode.GET_BROKER_CONFIG)
    return parse_properties(answer.body.decode(errors="replace"))


async def set_broker_config(client: ClientInstance, address: str, values: Mapping[str, str]) -> None:
    """Change settings of a running broker. A Firearrow broker rejects unknown keys, an Apache broker does not."""
    await client.check(address, RequestCode.UPDATE_BROKER_CONFIG, format_properties(dict(values)).encode())


async def broker_statistics(client: ClientInstance, address: str, name: str, key: str) -> BrokerStatsData | None:
    """Return the counts of the last minute, hour and day; None if the broker has none under this name and key."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    return await none_if_rejected(ResponseCode.SYSTEM_ERROR, ask_broker(client, address, header, BrokerStatsData))


async def clean_expired_queues(client: ClientInstance, address: str) -> None:
    """Delete consume queue files whose messages are deleted."""
    await client.check(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, timeout_ms=_CLEAN_TIMEOUT_MS)


async def clean_unused_topics(client: ClientInstance, address: str) -> None:
    """Delete consume queues of topics that no longer exist."""
    await client.check(address, RequestCode.CLEAN_UNUSED_TOPIC, timeout_ms=_CLEAN_TIMEOUT_MS)


async def delete_expired_log(client: ClientInstance, address: str) -> None:
    """Delete expired commit log files now instead of at the configured hour."""
    await client.check(address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_ms=_CLEAN_TIMEOUT_MS)


async def replication_status(client: ClientInstance, address: str) -> HARuntimeInfo:
    """Return the replication progress of a master's slaves."""
    return await ask_broker(client, address, RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)


def decimal(status: Mapping[str, Any], name: str) -> float:
    """Return the first number in a value of `broker_status`; 0.0 if it contains no number."""
    try:
        return float(str(status.get(name, "0")).split()[0])
    except (ValueError, IndexError):
        return 0.0
