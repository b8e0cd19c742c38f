"""Metrics in Prometheus's text format, under the names and labels of RocketMQ 5.

Very little is counted only for metrics: large messages, requests, transaction decisions. The lines are generated on request from
counters and offsets that exist anyway, so metrics cost the message paths next to nothing. `pieces` is a generator, which the
endpoint (endpoint.py) pauses whenever the event loop is needed. Tables that may change meanwhile are copied first.

All metrics have the labels cluster, node_type="broker", node_id=brokerName, and those of `metricsLabel`. Metrics that RocketMQ
does not have (log offsets, flushes, event loop) begin with `firearrow_`, those of the process with `process_`.

Some differ in meaning. `message_type` is the declared type of the topic (its attribute message.type), not that of the message.
rocketmq_send_to_dlq_messages_total is by group, not also by topic. rocketmq_half_messages is for all topics together. In
rocketmq_rpc_latency_milliseconds, sends acknowledged together count under the code of the first of them, and long-polling pulls
are left out.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

from firearrow import procfs
from firearrow.broker.context import BrokerContext
from firearrow.broker.message import read_message
from firearrow.broker.observability.process import LoopLag, process_figures
from firearrow.broker.observability.stats import PUT_TIME_EDGES, GroupGetStats, Histogram, TopicPutStats
from firearrow.broker.tables.clients import ConsumerGroup
from firearrow.broker.timer.service import TimerService
from firearrow.net.budget import ConnectionBudget
from firearrow.net.limits import descriptor_limit
from firearrow.net.server import Connection
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.names import DLQ_PREFIX, RETRY_PREFIX, TIMER_TOPIC, is_system_group, is_system_topic

_AT_ONCE = 64  # lines in a piece

Labels = Mapping[str, str]


class ExpositionWriter:
    """Formats samples. Labels are sorted; the common ones are formatted once."""

    def __init__(self, common: Labels) -> None:
        self._common = ",".join(f'{key}="{escaped(value)}"' for key, value in sorted(common.items()))

    def family(self, name: str, kind: str, text: str) -> str:
        return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"

    def line(self, name: str, labels: Labels, value: float) -> str:
        own = "".join(f',{key}="{escaped(text)}"' for key, text in labels.items())
        return f"{name}{{{self._common}{own}}} {value}\n"

    def lines(self, name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
        """Yield a family of many samples; nothing without samples."""
        some: list[str] = []
        head = self.family(name, kind, text)
        for labels, value in samples:
            some.append(self.line(name, labels, value))
            if len(some) == _AT_ONCE:
                yield head + "".join(some)
                head = ""
                some.clear()
        if some:
            yield head + "".join(some)

    def histograms(self, name: str, text: str, samples: Iterable[tuple[Labels, Histogram]]) -> Iterator[str]:
        head = self.family(name, "histogram", text)
        for labels, one in samples:
            count = 0
            lines = ""
            for edge, count in one.buckets():
                lines += self.line(f"{name}_bucket", {**labels, "le": edge}, count)
            yield head + lines + self.line(f"{name}_sum", labels, one.total) + self.line(f"{name}_count", labels, count)
            head = ""

    def one(self, name: str, kind: str, text: str, value: float, labels: Labels | None = None) -> str:
        return self.family(name, kind, text) + self.line(name, labels or {}, value)


def escaped(text: str) -> str:
    """Escape the value of a label. Topic and group names need no escaping; values sent by clients might."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


_MODES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of metrics outside the broker context."""

    connections: Iterable[Connection]
    open_transactions: int
    loop_lag: LoopLag
    common: Labels
    budget: ConnectionBudget | None  # of the listen port and the fast port


def pieces(broker: BrokerContext, sources: Sources, now_ms: int) -> Iterator[str]:
    """Yield the whole text in pieces of a few lines. An empty piece is only a place to pause."""
    page = ExpositionWriter(sources.common)
    yield from _broker(page, broker, sources)
    yield from _traffic(page, broker)
    yield from _requests(page, broker)
    yield from _transactions(page, broker, sources.open_transactions)
    yield from _clients(page, broker)
    yield from _lag(page, broker, now_ms)
    yield from _deferred(page, broker, now_ms)
    yield from _storage(page, broker, now_ms)
    yield from _budgets(page, broker, sources)
    yield from page.histograms("firearrow_loop_lag_seconds", "How late the event loop was with a timer", [({}, sources.loop_lag)])
    for name, kind, text, value in process_figures():
        yield page.one(name, kind, text, value)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _broker(page: ExpositionWriter, broker: BrokerContext, sources: Sources) -> Iterator[str]:
    yield page.one("rocketmq_broker_permission", "gauge", "2 write, 4 read, 6 both", broker.settings.broker_permission)
    yield page.one("rocketmq_topic_number", "gauge", "Topics", len(broker.topics.all()))
    yield page.one("rocketmq_consumer_group_number", "gauge", "Consumer groups", len(broker.groups.all()))
    conns = [conn for conn in sources.connections if conn.state is not None]
    sends = sum(conn.state.in_flight for conn in conns)
    yield page.one("rocketmq_processor_watermark", "gauge", "Requests that wait to be answered", sends, {"processor": "send"})
    yield page.line("rocketmq_processor_watermark", {"processor": "pull"}, 0)
    held = sum(len(conn.state.parked) for conn in conns)
    yield page.one("firearrow_held_pulls", "gauge", "Pulls that wait for messages", held)
    yield page.one("firearrow_connections", "gauge", "Connections to the listen port and the fast port", len(conns))
    text = "When the broker was started, seconds since 1970"
    yield page.one("firearrow_boot_time_seconds", "gauge", text, broker.boot_ms / 1000)


def _budgets(page: ExpositionWriter, broker: BrokerContext, sources: Sources) -> Iterator[str]:
    """Limits of resources, and how much of each is in use."""
    settings, budget = broker.settings, sources.budget
    parked = sum(len(conn.state.parked) for conn in sources.connections if conn.state is not None)
    usage: dict[str, tuple[int, int]] = {"parked_pulls": (parked, settings.max_parked_pulls)}
    if budget is not None:
        limits = budget.limits
        usage |= {
            "connections": (budget.connections, limits.connections),
            "connections_per_address": (budget.busiest_address, limits.connections_per_address),
            "incoming_bytes": (budget.incoming.total, limits.incoming_bytes),
            "outgoing_bytes": (budget.outgoing.total, limits.outgoing_bytes),
        }
    process = procfs.read_usage()
    if process is not None:
        usage["file_descriptors"] = (process.open_files, descriptor_limit())
    used = (({"budget": name}, in_use) for name, (in_use, _) in usage.items())
    yield from page.lines("firearrow_budget_used", "gauge", "How much of a limited resource is in use", used)
    allowed = (({"budget": name}, limit) for name, (_, limit) in usage.items())
    yield from page.lines("firearrow_budget_limit", "gauge", "How much of it may be in use", allowed)
    if budget is not None:
        refused = [({"limit": name}, budget.refused[name]) for name in ("total", "address")]
        yield from page.lines("firearrow_connections_refused_total", "counter", "Connections beyond a limit", refused)
        closed = [({"reason": name}, budget.closed[name]) for name in ("silent", "incoming", "outgoing", "deadline")]
        yield from page.lines("firearrow_connections_closed_total", "counter", "Connections closed to keep a limit", closed)


def _traffic(page: ExpositionWriter, broker: BrokerContext) -> Iterator[str]:
    stats, topics = broker.stats, broker.topics
    put: list[tuple[Labels, TopicPutStats]] = []
    for topic, sent in stats.topics_put():
        kind = _message_type(topics.find(topic))
        put.append(({"is_system": _truth(is_system_topic(topic)), "message_type": kind, "topic": topic}, sent))
        yield ""
    put_nums = ((labels, sent.nums) for labels, sent in put)
    yield from page.lines("rocketmq_messages_in_total", "counter", "Messages stored", put_nums)
    put_size = ((labels, sent.size) for labels, sent in put)
    yield from page.lines("rocketmq_throughput_in_total", "counter", "Bytes of messages stored", put_size)
    sizes = ((labels, sent.sizes()) for labels, sent in put)
    yield from page.histograms("rocketmq_message_size", "Bytes of a message, as it is stored", sizes)
    got: list[tuple[Labels, GroupGetStats]] = []
    for topic, group, given in stats.groups_got():
        got.append(({"consumer_group": group, "is_system": _truth(_is_system(topic, group)), "topic": topic}, given))
        yield ""
    got_nums = ((labels, given.nums) for labels, given in got)
    yield from page.lines("rocketmq_messages_out_total", "counter", "Messages given to consumers", got_nums)
    got_size = ((labels, given.size) for labels, given in got)
    yield from page.lines("rocketmq_throughput_out_total", "counter", "Bytes of messages given to consumers", got_size)
    dead = (
        ({"consumer_group": labels["topic"].removeprefix(DLQ_PREFIX)}, sent.nums)
        for labels, sent in put
        if labels["topic"].startswith(DLQ_PREFIX)
    )
    yield from page.lines("rocketmq_send_to_dlq_messages_total", "counter", "Messages that became dead letters", dead)
    back = (({"consumer_group": group, "topic": topic}, times) for topic, group, times in stats.groups_sent_back())
    yield from page.lines("firearrow_sent_back_messages_total", "counter", "Messages that consumers could not deal with", back)

    yield page.one("firearrow_put_failed_total", "counter", "Sends that the store refused", stats.put_failed)
    pulls = [({"result": "found"}, stats.get_found), ({"result": "miss"}, stats.get_miss)]
    yield from page.lines("firearrow_pulls_total", "counter", "Pulls that were answered, with messages or without", pulls)
    yield from _put_times(page, stats.put_time_counts)
    longest_s = stats.put_time_max_ms / 1000
    yield page.one("firearrow_put_seconds_max", "gauge", "The longest time from a send to its answer", longest_s)


def _put_times(page: ExpositionWriter, counts: list[int]) -> Iterator[str]:
    edges = (*(str(edge / 1000) for edge in PUT_TIME_EDGES), "+Inf")
    samples = [({"le": edge}, below) for edge, below in zip(edges, accumulate(counts), strict=True)]
    text = "Sends answered within so many seconds; for histogram_quantile"
    yield from page.lines("firearrow_put_seconds_bucket_total", "counter", text, samples)


def _requests(page: ExpositionWriter, broker: BrokerContext) -> Iterator[str]:
    samples = (
        (
            {
                "is_long_polling": "false",
                "protocol_type": "remoting",
                "request_code": _code_name(RequestCode, code),
                "response_code": _code_name(ResponseCode, answer),
                "result": "success",
            },
            took,
        )
        for (code, answer), took in list(broker.stats.requests.items())
    )
    yield from page.histograms("rocketmq_rpc_latency_milliseconds", "Time from a request to its answer", samples)
    stats = broker.stats
    for kind, text, creations in (("topic", "topics", stats.topics_created), ("consumer_group", "groups", stats.groups_created)):
        took = [
            ({"invocation_status": "success" if done else "failure", "is_system": _truth(system)}, histogram)
            for (done, system), histogram in creations.took.items()
        ]
        yield from page.histograms(f"rocketmq_{kind}_create_execution_time_milliseconds", f"Time to make or change {text}", took)


def _code_name(codes: type[IntEnum], code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return "unknown"


def _transactions(page: ExpositionWriter, broker: BrokerContext, open_count: int) -> Iterator[str]:
    stats = broker.stats
    tables = (
        ("rocketmq_commit_messages_total", "Transactions that were committed", stats.committed),
        ("rocketmq_rollback_messages_total", "Transactions that were rolled back", stats.rolled_back),
    )
    for name, text, table in tables:
        yield from page.lines(name, "counter", text, [({"topic": topic}, count) for topic, count in table.items()])
    finished = [({"topic": topic}, ages) for topic, ages in stats.finished.items()]
    # Apache's name says milliseconds, its values and edges are seconds.
    name = "rocketmq_finish_message_latency_milliseconds"
    yield from page.histograms(name, "Seconds from a half message until it is committed", finished)
    name = "rocketmq_half_messages"
    yield page.one(name, "gauge", "Half messages that wait for a decision, of all topics", open_count)


def _message_type(config: object) -> str:
    attributes = getattr(config, "attributes", None) or {}
    return str(attributes.get("message.type", "NORMAL")).lower()


def _is_system(topic: str, group: str) -> bool:
    return is_system_topic(topic) or is_system_group(group)


def _clients(page: ExpositionWriter, broker: BrokerContext) -> Iterator[str]:
    same = {"protocol_type": "remoting"}
    producing = Counter(
        (client.language.lower(), client.version) for members in broker.clients.producers().values() for client in members
    )
    producers = (
        ({"language": language, **same, "version": version_text(version)}, count)
        for (language, version), count in producing.items()
    )
    yield from page.lines("rocketmq_producer_connections", "gauge", "Producers that are connected", producers)
    consumers = [sample for group in list(broker.clients.consumer_groups()) for sample in _members(group)]
    yield from page.lines("rocketmq_consumer_connections", "gauge", "Consumers that are connected", consumers)


def _members(group: ConsumerGroup) -> Iterator[tuple[Labels, float]]:
    counted = Counter((client.language.lower(), client.version) for client in group.members.values())
    for (language, version), count in counted.items():
        labels = {
            "consume_mode": _MODES.get(group.consume_type or "", "push"),
            "consumer_group": group.name,
            "is_system": _truth(is_system_group(group.name)),
            "language": language,
            "protocol_type": "remoting",
            "version": version_text(version),
        }
        yield labels, count


def version_text(number: int) -> str:
    """Return a client's version as RocketMQ names it; a snapshot, or a version before 5.0.0, as its number.

    Since 5.0.0 the numbers increase by two for a release and by twenty for a minor version.
    """
    minor, rest = divmod(number - 413, 20)
    return f"v5_{minor}_{rest // 2}" if number >= 413 and rest % 2 == 0 else str(number)


@dataclass(slots=True)
class _Lag:
    """Lag of one group in one topic: messages not consumed, and of those, not yet pulled."""

    labels: Labels
    lag: int = 0
    ready: int = 0
    in_flight: int = 0
    earliest_ms: int = 0  # of the oldest message not consumed; 0: none
    next_ms: int = 0  # of the oldest message not given to a consumer; 0: none


def _lag(page: ExpositionWriter, broker: BrokerContext, now_ms: int) -> Iterator[str]:
    known: list[_Lag] = []
    for topic in broker.offsets.topics():
        for group in broker.offsets.groups_of(topic):
            if broker.topics.find(topic) is None:
                break
            labels = {
                "consumer_group": group,
                "is_retry": _truth(topic.startswith(RETRY_PREFIX)),
                "is_system": _truth(_is_system(topic, group)),
                "topic": topic,
            }
            lag = _Lag(labels)
            for queue_id in list(broker.offsets.offsets_of(group, topic)):
                _count_queue(broker, lag, group, topic, queue_id)
                yield ""
            known.append(lag)
    families = (
        ("rocketmq_consumer_lag_messages", "Messages that the group has not consumed", [one.lag for one in known]),
        ("rocketmq_consumer_ready_messages", "Of these: not given to a consumer yet", [one.ready for one in known]),
        ("rocketmq_consumer_inflight_messages", "Of these: given to a consumer", [one.in_flight for one in known]),
        (
            "rocketmq_consumer_lag_latency_milliseconds",
            "Age of the oldest message that the group has not consumed",
            [now_ms - one.earliest_ms if one.earliest_ms else 0 for one in known],
        ),
        (
            "rocketmq_consumer_queueing_latency_milliseconds",
            "Age of the oldest message that no consumer of the group was given",
            [now_ms - one.next_ms if one.next_ms else 0 for one in known],
        ),
    )
    for name, text, values in families:
        yield from page.lines(name, "gauge", text, ((one.labels, value) for one, value in zip(known, values, strict=True)))


def _count_queue(broker: BrokerContext, lag: _Lag, group: str, topic: str, queue_id: int) -> None:
    queue = broker.store.find_queue(topic, queue_id)
    consumed = broker.offsets.query(group, topic, queue_id)
    if queue is None or consumed is None:
        return
    consumed = min(max(consumed, queue.min_offset), queue.max_offset)  # what is deleted can no longer be consumed
    given = broker.offsets.query_pulled(group, topic, queue_id)
    given = consumed if given is None else min(max(given, consumed), queue.max_offset)
    lag.lag += queue.max_offset - consumed
    lag.in_flight += given - consumed
    lag.ready += queue.max_offset - given
    if consumed < queue.max_offset:
        stored_ms = broker.store.reader.store_time(queue, consumed) or 0
        lag.earliest_ms = min(lag.earliest_ms or stored_ms, stored_ms)
        if given < queue.max_offset:
            next_ms = stored_ms if given == consumed else broker.store.reader.store_time(queue, given) or 0
            lag.next_ms = min(lag.next_ms or next_ms, next_ms)


TIMER_BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 86_400)  # Apache's
STORAGE = {"storage_medium": "disk", "storage_type": "local"}


def _deferred(page: ExpositionWriter, broker: BrokerContext, now_ms: int) -> Iterator[str]:
    """Timer messages and delay levels."""
    timers = broker.timers
    if broker.settings.timer_wheel_enable:
        figures = timers.runtime_info(now_ms)
        behind = int(figures["timerOffsetBehind"])
        queue = broker.store.find_queue(TIMER_TOPIC, 0)
        first_ms = broker.store.reader.store_time(queue, queue.max_offset - behind) if queue is not None and behind else None
        late_ms = int(figures["timerReadBehind"]) * 1000
        entered, left = timers.metrics.totals
        for name, kind, text, value in (
            ("enqueue_lag", "gauge", "Timer messages not in the wheel yet", behind),
            ("enqueue_latency_milliseconds", "gauge", "Age of the oldest of these", now_ms - first_ms if first_ms else 0),
            ("dequeue_lag", "gauge", "Out of the wheel, not delivered: none, it is one step here", 0),
            ("dequeue_latency_milliseconds", "gauge", "How late the wheel is", late_ms),
            ("enqueue_total", "counter", "Timer messages that were put into the wheel", entered),
            ("dequeue_total", "counter", "Timer messages that left it", left),
        ):
            yield page.one(f"rocketmq_timer_{name}", kind, text, value, STORAGE)
        timing = timers.metrics.to_json()["timingCount"].items()
        samples = (({**STORAGE, "topic": topic}, one["count"]) for topic, one in timing)
        yield from page.lines("rocketmq_timing_messages", "gauge", "Timer messages that wait", samples)
        yield from _ahead(page, timers, now_ms)
    levels = (({"level": str(level)}, end - at) for level, at, end in broker.delay.progress())
    yield from page.lines("firearrow_delayed_messages", "gauge", "Messages that wait at a delay level", levels)


def _ahead(page: ExpositionWriter, timers: TimerService, now_ms: int) -> Iterator[str]:
    counts = dict.fromkeys(TIMER_BOUNDS_S, 0)
    for moment_ms, messages in timers.pending_by_slot(now_ms, TIMER_BOUNDS_S[-1] * 1000):
        counts[TIMER_BOUNDS_S[bisect_right(TIMER_BOUNDS_S, max(moment_ms - now_ms, 0) // 1000)]] += messages
        yield ""
    samples = (({**STORAGE, "timer_bound_s": str(bound)}, count) for bound, count in counts.items())
    text = "Timer messages due within so many seconds, and not within the bound before"
    yield from page.lines("rocketmq_timer_message_snapshot", "gauge", text, samples)


def _storage(page: ExpositionWriter, broker: BrokerContext, now_ms: int) -> Iterator[str]:
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
    behind = max(store.flushed_offset - store.confirm_offset, 0)
    yield page.one(name, "gauge", "Bytes flushed but not visible in a queue", behind, STORAGE)
    oldest = read_message(store, store.min_offset, check_crc=False)
    age_ms = 0 if oldest is None else now_ms - oldest.store_timestamp
    name = "rocketmq_storage_message_reserve_time_milliseconds"
    yield page.one(name, "gauge", "Age of the oldest message in the log", age_ms, STORAGE)
    ends = (("min", store.min_offset), ("confirmed", store.confirm_offset), ("flushed", store.flushed_offset))
    samples = [({"of": name}, offset) for name, offset in (*ends, ("max", store.max_offset))]
    yield from page.lines("firearrow_log_offset_bytes", "gauge", "Offsets of the commit log", samples)
    yield page.one("firearrow_store_writable", "gauge", "1: messages are taken, 0: they are refused", int(store.writable))
    yield page.one("firearrow_index_behind_messages", "gauge", "Messages whose keys are not indexed yet", store.index_backlog)
    damage, scrubber = store.damage, store.scrubber
    yield page.one("firearrow_damaged_messages_total", "counter", "Messages skipped because they are damaged", damage.messages)
    yield page.one("firearrow_damaged_log_bytes", "gauge", "Bytes of the log that are known to be damaged", damage.damaged_bytes)
    name = "firearrow_repaired_queue_entries_total"
    yield page.one(name, "counter", "Damaged queue entries repaired from the log", damage.repaired_entries)
    yield page.one("firearrow_scrubbed_bytes_total", "counter", "Bytes verified in the background", scrubber.verified_bytes)
    flushes = store.flush_stats
    yield page.one("firearrow_flushes_total", "counter", "Flushes of the commit log", flushes.count)
    yield page.one("firearrow_flush_seconds_total", "counter", "Time that flushes took", flushes.total_ns / 1e9)
    yield page.one("firearrow_flush_seconds_max", "gauge", "Time that the longest flush took", flushes.longest_ns / 1e9)
