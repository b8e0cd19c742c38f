"""Brokers themselves: their state, settings, statistics and clean-ups. `address` is `host:port`, as in `list_brokers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import BrokerError
from firearrow.config.properties_file import format_properties, parse_properties
from firearrow.wire import fastjson
from firearrow.wire.bodies.admin import BrokerStatsData, HARuntimeInfo
from firearrow.wire.bodies.route import KVTable
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.headers.admin import ViewBrokerStatsDataRequestHeader

STATISTICS: Final = (
    "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS", "BROKER_PUT_NUMS",
    "BROKER_GET_NUMS",
)  # fmt: skip
"""TOPIC_...: the key is a topic. GROUP_... and SNDBCK_...: `topic@group`. BROKER_...: the name of the cluster."""

_CLEAN_TIMEOUT_MS: Final = 30_000


async def broker_status(client: ClientInstance, address: str) -> dict[str, str]:
    """The state of a broker under Apache's names, such as putTps and commitLogDiskRatio."""
    answer = await client.check(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    status = KVTable.from_json(fastjson.loads(answer.body)).table
    if "getTransferedTps" in status:  # so spelled before 5.0
        status.setdefault("getTransferredTps", status["getTransferedTps"])
    return status


async def broker_config(client: ClientInstance, address: str) -> dict[str, str]:
    answer = await client.check(address, RequestCode.GET_BROKER_CONFIG)
    return parse_properties(answer.body.decode(errors="replace"))


async def set_broker_config(client: ClientInstance, address: str, values: Mapping[str, str]) -> None:
    """Changes settings while the broker runs. A Firearrow broker refuses what is no such setting, an Apache broker does not."""
    body = format_properties(dict(values)).encode()
    await client.check(address, RequestCode.UPDATE_BROKER_CONFIG, body)


async def broker_statistics(client: ClientInstance, address: str, name: str, key: str) -> BrokerStatsData | None:
    """Numbers of the last minute, hour and day; None if nothing was counted under this name and key."""
    answer = await client.call(address, ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key))
    if answer.code == ResponseCode.SYSTEM_ERROR:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address)
    return BrokerStatsData.from_json(fastjson.loads(answer.body))


async def clean_expired_queues(client: ClientInstance, address: str) -> None:
    """Deletes queue files whose messages are gone."""
    await client.check(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, timeout_ms=_CLEAN_TIMEOUT_MS)


async def clean_unused_topics(client: ClientInstance, address: str) -> None:
    """Deletes queue files of topics that the broker does not have."""
    await client.check(address, RequestCode.CLEAN_UNUSED_TOPIC, timeout_ms=_CLEAN_TIMEOUT_MS)


async def delete_expired_log(client: ClientInstance, address: str) -> None:
    """Deletes expired commit-log files now instead of at the hour set for it."""
    await client.check(address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_ms=_CLEAN_TIMEOUT_MS)


async def replication_status(client: ClientInstance, address: str) -> HARuntimeInfo:
    """How far the slaves of a master are."""
    answer = await client.check(address, RequestCode.GET_BROKER_HA_STATUS)
    return HARuntimeInfo.from_json(fastjson.loads(answer.body))


def decimal(status: Mapping[str, Any], name: str) -> float:
    """The first number of a figure of `broker_status`; 0.0 if there is none."""
    try:
        return float(str(status.get(name, "0")).split()[0])
    except (ValueError, IndexError):
        return 0.0
