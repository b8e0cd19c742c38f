"""The broker itself: its settings (25, 26), its state (28), its timers (60, 61), statistics (315), replication (907).

Only settings declared as changeable while running are changed, only to values in their range, all of a request or none. A change
holds until the broker is restarted; the configuration file is not written.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace

import orjson

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.message import read_message
from firearrow.broker.observability.stats import PUT_TIME_EDGES
from firearrow.broker.requests.responses import Refused, json_answer
from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import SettingError, as_properties, change, declared
from firearrow.config.properties_file import format_properties, parse_properties
from firearrow.net.server import Connection
from firearrow.store.settings import StoreSettings
from firearrow.wire.bodies.admin import BrokerStatsData, HARuntimeInfo
from firearrow.wire.bodies.route import KVTable
from firearrow.wire.bodies.topic import DataVersion
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.admin import ViewBrokerStatsDataRequestHeader

log = logging.getLogger("firearrow.broker")

VERSION_NAME = "V5_5_0"  # the release whose protocol is spoken
BLACK_LIST = frozenset(("brokerConfigPath", "configBlackList"))  # Apache's settings
_MAX_CHANGES = 1_000
_MAX_BODY_BYTES = 65_536


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    targets = [broker.settings, broker.store_settings]
    kinds = (BrokerSettings, StoreSettings)
    version = DataVersion(timestamp=broker.boot_ms)

    def update_broker_config(conn: Connection, request: Command, now_ms: int) -> bytes:
        nonlocal version
        wish = _read_wish(request)
        for key, text in wish.items():
            if key in BLACK_LIST:
                raise Refused(ResponseCode.NO_PERMISSION, f"Can not update config in black list: {key}={text[:128]}")
            known = [declaration for kind in kinds if (declaration := declared(kind).get(key)) is not None]
            if known and not any(declaration.runtime for declaration in known):
                raise Refused(
                    ResponseCode.NO_PERMISSION,
                    f"Can not update config in black list: {key}={text[:128]} cannot be changed while the broker runs. "
                    f"Set it in the configuration file and restart.",
                )
        try:
            change(targets, wish)
        except SettingError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"nothing was changed: {error}") from None
        version = replace(version, counter=version.counter + 1, timestamp=now_ms)
        fields = {"event": "settings_changed", "settings": wish, "by": conn.peer}
        log.info("settings changed by %s: %s", conn.peer, wish, extra={"fields": fields})
        if wish.keys() & {"autoCreateTopicEnable", "traceTopicEnable"}:
            broker.topics.add_system_topics(now_ms)  # the template topic and the trace topic
        if "brokerPermission" in wish:
            broker.topics.next_version(now_ms)  # name servers ignore a registration whose version they have seen
        if wish.keys() & {"autoCreateTopicEnable", "brokerPermission", "traceTopicEnable"}:
            broker.register_all()
        return encode_response(request, ResponseCode.SUCCESS, "in force until the broker is restarted")

    def in_force() -> dict[str, str]:
        """Return the values that differ from the settings: the elected role, and the port if any free one was asked for."""
        role = broker.role
        return {"brokerRole": role.role, "brokerId": str(role.broker_id), "listenPort": str(broker.listen_port)}

    def get_broker_config(conn: Connection, request: Command, now_ms: int) -> bytes:
        body = format_properties(as_properties(targets) | in_force()).encode()
        ext = {"version": orjson.dumps(version.to_json()).decode()}
        return encode_response(request, ResponseCode.SUCCESS, ext=ext, body=body)

    def get_broker_runtime_info(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, KVTable(runtime_info(broker, now_ms)))

    def get_timer_check_point(conn: Connection, request: Command, now_ms: int) -> bytes:
        body = broker.timers.checkpoint()
        if body is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The checkpoint is null: timerWheelEnable is false")
        return encode_response(request, ResponseCode.SUCCESS, body=body)

    def get_timer_metrics(conn: Connection, request: Command, now_ms: int) -> bytes:
        if not broker.settings.timer_wheel_enable:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The timer message store is null: timerWheelEnable is false")
        return json_answer(request, broker.timers.metrics.to_json())

    def view_broker_stats_data(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = ViewBrokerStatsDataRequestHeader.decode(request.ext)
        windows = broker.stats.view(header.stats_name, header.stats_key)
        if windows is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return json_answer(request, BrokerStatsData(*windows))

    def get_broker_ha_status(conn: Connection, request: Command, now_ms: int) -> bytes:
        return json_answer(request, HARuntimeInfo(master=True, master_commit_log_max_offset=broker.store.max_offset))

    return {
        RequestCode.UPDATE_BROKER_CONFIG: update_broker_config,
        RequestCode.GET_BROKER_CONFIG: get_broker_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: get_broker_runtime_info,
        RequestCode.GET_TIMER_CHECK_POINT: get_timer_check_point,
        RequestCode.GET_TIMER_METRICS: get_timer_metrics,
        RequestCode.VIEW_BROKER_STATS_DATA: view_broker_stats_data,
        RequestCode.GET_BROKER_HA_STATUS: get_broker_ha_status,
    }


def runtime_info(broker: BrokerContext, now_ms: int) -> dict[str, str]:
    """Return the state of the broker under Apache's names. Values without a meaning here (thread pools) are those of an idle
    broker, because tools parse them."""
    store, stats = broker.store, broker.stats
    oldest = read_message(store, store.min_offset, check_crc=False)
    info = {
        "bootTimestamp": broker.boot_ms,
        "runtime": _duration(now_ms - broker.boot_ms),
        "brokerVersionDesc": VERSION_NAME,
        "brokerVersion": 513,
        "brokerActive": "true",
        "putMessageTimesTotal": stats.put_nums(),
        "putMessageFailedTimes": stats.put_failed,
        "putMessageSizeTotal": stats.put_size(),
        "putMessageAverageSize": stats.put_size() / stats.put_nums() if stats.put_nums() else 0.0,
        "putMessageEntireTimeMax": stats.put_time_max_ms,
        "putMessageDistributeTime": _distribution(stats.put_time_counts),
        "putLatency99": f"{_percentile_ms(stats.put_time_counts, 0.99):.2f}",
        "putLatency999": f"{_percentile_ms(stats.put_time_counts, 0.999):.2f}",
        "getMessageEntireTimeMax": 0,
        "dispatchMaxBuffer": 0,
        "dispatchBehindBytes": 0,
        "commitLogMinOffset": store.min_offset,
        "commitLogMaxOffset": store.max_offset,
        "remainHowManyDataToFlush": _bytes(max(store.max_offset - store.flushed_offset, 0)),
        "remainTransientStoreBufferNumbs": 2**31 - 1,
        "earliestMessageTimeStamp": -1 if oldest is None else oldest.store_timestamp,
        "pageCacheLockTimeMills": 0,
        "startAcceptSendRequestTimeStamp": 0,
    }
    info |= stats.day_totals()
    info |= {name: " ".join(str(rate) for rate in rates) for name, rates in stats.rates().items()}
    info["getTransferedTps"] = info["getTransferredTps"]  # as tools before 5.0 spell it, and fail without it
    info |= _disk_info(broker)
    info |= _pool_info(broker)
    if store.damage.ranges:
        info |= {"damagedLogBytes": store.damage.damaged_bytes, "damagedMessages": store.damage.messages}
    info |= _waiting_info(broker, now_ms)
    return {key: str(value) for key, value in sorted(info.items())}


def _read_wish(request: Command) -> dict[str, str]:
    if len(request.body) > _MAX_BODY_BYTES:
        remark = f"the body has {len(request.body)} bytes; expected at most {_MAX_BODY_BYTES}"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    try:
        wish = parse_properties(request.body.decode())
    except ValueError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"the body is not a list of key=value lines: {error}") from None
    if not wish or len(wish) > _MAX_CHANGES:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"the body names {len(wish)} settings; expected 1 to {_MAX_CHANGES}")
    return wish


def _disk_info(broker: BrokerContext) -> dict[str, object]:
    directory = broker.store_settings.commit_log_dir
    try:
        ratio, space = broker.store.disk_usage() / 100, shutil.disk_usage(directory)
        capacity = f"Total : {_bytes(space.total)}, Free : {_bytes(space.free)}."
    except OSError:  # a store in memory has no disk
        ratio, capacity = 0.0, "Total : 0 B, Free : 0 B."
    ratios = dict.fromkeys(("commitLogDiskRatio", f"commitLogDiskRatio_{directory}", "consumeQueueDiskRatio"), round(ratio, 2))
    return {"commitLogDirCapacity": capacity, **ratios}


def _waiting_info(broker: BrokerContext, now_ms: int) -> dict[str, object]:
    info: dict[str, object] = dict.fromkeys(("timerReadBehind", "timerOffsetBehind", "timerCongestNum"), 0)
    info |= dict.fromkeys(("timerEnqueueTps", "timerDequeueTps"), 0.0)
    if broker.settings.timer_wheel_enable:
        info |= broker.timers.runtime_info(now_ms)
    info |= broker.delay.runtime_info()
    return info


def _pool_info(broker: BrokerContext) -> dict[str, object]:
    settings = broker.settings
    info: dict[str, object] = {}
    for pool in ("send", "pull", "query", "ack", "litePull"):
        info[f"{pool}ThreadPoolQueueSize"] = 0
        info[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = 0
        info[f"{pool}ThreadPoolQueueCapacity"] = 100_000
    return info | {
        "sendThreadPoolQueueCapacity": settings.send_thread_pool_queue_capacity,
        "pullThreadPoolQueueCapacity": settings.pull_thread_pool_queue_capacity,
        "queryThreadPoolQueueCapacity": 20_000,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": 100_000,
    }


def _duration(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    return f"[ {days} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"


def _bytes(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    value, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}"


_EDGE_NAMES = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s",
    "1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~",
)  # fmt: skip
assert len(_EDGE_NAMES) == len(PUT_TIME_EDGES) + 1


def _distribution(counts: list[int]) -> str:
    return "".join(f"[{name}]:{count} " for name, count in zip(_EDGE_NAMES, counts, strict=True))


def _percentile_ms(counts: list[int], share: float) -> int:
    """Return an upper bound of the percentile: the edge of its bucket."""
    left = sum(counts) * share
    if not left:
        return 0
    for edge, count in zip((*PUT_TIME_EDGES, PUT_TIME_EDGES[-1]), counts, strict=True):
        left -= count
        if left <= 0:
            return edge
    return PUT_TIME_EDGES[-1]
