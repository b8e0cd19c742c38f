"""Figures for Prometheus, continued: messages that wait, and the store. metrics.py says what holds for all of them."""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator

from firearrow.broker.context import BrokerContext
from firearrow.broker.observability.metrics_page import ExpositionWriter, Labels
from firearrow.broker.timer.service import TimerService
from firearrow.wire import record
from firearrow.wire.errors import ProtocolError
from firearrow.wire.names import TIMER_TOPIC

TIMER_BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 86_400)  # Apache's
STORAGE = {"storage_medium": "disk", "storage_type": "local"}


def waiting(page: ExpositionWriter, broker: BrokerContext, now_ms: int) -> Iterator[str]:
    """Messages that are not delivered as they come: timers and delay levels."""
    timers = broker.timers
    if broker.settings.timer_wheel_enable:
        figures = timers.runtime_info(now_ms)
        behind = int(figures["timerOffsetBehind"])
        yield page.one("rocketmq_timer_enqueue_lag", "gauge", "Timer messages not in the wheel yet", behind, STORAGE)
        queue = broker.store.find_queue(TIMER_TOPIC, 0)
        first_ms = broker.store.reader.store_time(queue, queue.max_offset - behind) if queue is not None and behind else None
        name = "rocketmq_timer_enqueue_latency_milliseconds"
        yield page.one(name, "gauge", "Age of the oldest of these", now_ms - first_ms if first_ms else 0, STORAGE)
        name = "rocketmq_timer_dequeue_lag"
        yield page.one(name, "gauge", "Out of the wheel, not delivered: none, it is one step here", 0, STORAGE)
        late_ms = int(figures["timerReadBehind"]) * 1000
        name = "rocketmq_timer_dequeue_latency_milliseconds"
        yield page.one(name, "gauge", "How late the wheel is", late_ms, STORAGE)
        entered, left = timers.metrics.totals
        name = "rocketmq_timer_enqueue_total"
        yield page.one(name, "counter", "Timer messages that were put into the wheel", entered, STORAGE)
        name = "rocketmq_timer_dequeue_total"
        yield page.one(name, "counter", "Timer messages that left it", left, STORAGE)
        timing = timers.metrics.to_json()["timingCount"].items()
        samples = (({**STORAGE, "topic": topic}, one["count"]) for topic, one in timing)
        yield from page.lines("rocketmq_timing_messages", "gauge", "Timer messages that wait", samples)
        yield from _ahead(page, timers, now_ms)
    levels: list[tuple[Labels, float]] = []
    for key, text in broker.delay.runtime_info().items():
        at, _, end = text.partition(",")
        levels.append(({"level": key.rpartition("_")[2]}, int(end) - int(at)))
    yield from page.lines("firearrow_delayed_messages", "gauge", "Messages that wait at a delay level", levels)


def _ahead(page: ExpositionWriter, timers: TimerService, now_ms: int) -> Iterator[str]:
    counts = dict.fromkeys(TIMER_BOUNDS_S, 0)
    for moment_ms, messages in timers.pending_by_slot(now_ms, TIMER_BOUNDS_S[-1] * 1000):
        counts[TIMER_BOUNDS_S[bisect_right(TIMER_BOUNDS_S, max(moment_ms - now_ms, 0) // 1000)]] += messages
        yield ""
    samples = (({**STORAGE, "timer_bound_s": str(bound)}, count) for bound, count in counts.items())
    text = "Timer messages due within so many seconds, and not within the bound before"
    yield from page.lines("rocketmq_timer_message_snapshot", "gauge", text, samples)


def storage(page: ExpositionWriter, broker: BrokerContext, now_ms: int) -> Iterator[str]:
    store = broker.store
    directory = broker.store_settings.commit_log_dir
    if os.path.isdir(directory):
        space = shutil.disk_usage(directory)
        yield page.one("rocketmq_storage_size_bytes", "gauge", "Bytes used on the log's disk", space.used, STORAGE)
        yield page.one("firearrow_disk_free_bytes", "gauge", "Bytes that are free on the log's disk", space.free)
        yield page.one("firearrow_disk_used_ratio", "gauge", "How full the log's disk is, 0 to 1", store.disk_usage() / 100)
    behind = max(store.max_offset - store.flushed_offset, 0)
    yield page.one("rocketmq_storage_flush_behind_bytes", "gauge", "Bytes written but not flushed", behind, STORAGE)
    name = "rocketmq_storage_dispatch_behind_bytes"
    yield page.one(
        name, "gauge", "Bytes flushed but not visible in a queue", max(store.flushed_offset - store.confirm_offset, 0), STORAGE
    )
    earliest_ms = _earliest_ms(broker)
    age_ms = now_ms - earliest_ms if earliest_ms > 0 else 0
    name = "rocketmq_storage_message_reserve_time_milliseconds"
    yield page.one(name, "gauge", "Age of the oldest message in the log", age_ms, STORAGE)
    offsets = {
        "min": store.min_offset,
        "confirmed": store.confirm_offset,
        "flushed": store.flushed_offset,
        "max": store.max_offset,
    }
    samples = (({"of": key}, value) for key, value in offsets.items())
    yield from page.lines("firearrow_log_offset_bytes", "gauge", "Offsets of the commit log", samples)
    yield page.one("firearrow_store_writable", "gauge", "1: messages are taken, 0: they are refused", int(store.writable))
    yield page.one("firearrow_index_behind_messages", "gauge", "Messages whose keys are not indexed yet", store.index_backlog)
    flushes = store.flush_stats
    yield page.one("firearrow_flushes_total", "counter", "Flushes of the commit log", flushes.count)
    yield page.one("firearrow_flush_seconds_total", "counter", "Time that flushes took", flushes.total_ns / 1e9)
    yield page.one("firearrow_flush_seconds_max", "gauge", "Time that the longest flush took", flushes.longest_ns / 1e9)


def _earliest_ms(broker: BrokerContext) -> int:
    oldest = broker.store.read_record(broker.store.min_offset)
    try:
        return 0 if oldest is None else record.decode(oldest, check_crc=False).store_timestamp
    except ProtocolError:  # damaged on the disk
        return 0
