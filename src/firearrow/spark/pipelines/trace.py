"""The job `trace`: message latencies, from the trace topic.

    send       from the call to the broker's reply, as measured by the producer
    store      from the creation of the message to its storage (joined from the topics, if available)
    wait       from the reply to the receipt by the consumer
    consume    duration of the listener
    end_to_end from the call to the end of the listener

A trace message contains contexts terminated by U+0002, with fields separated by U+0001 (`client/trace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from firearrow.spark.cluster import cluster_client
from firearrow.spark.options import read_options
from firearrow.spark.pipelines.sources import CLIENT_OPTIONS
from firearrow.wire.names import TRACE_TOPIC

STAGES: Final = ("send", "store", "wait", "consume", "end_to_end")
BUCKETS: Final = 60  # of the timeline
_PERCENTILES: Final = ("p50", "p95", "p99")


@dataclass
class TraceReport:
    """Data of the report page."""

    first_ms: int = 0
    last_ms: int = 0
    bucket_ms: int = 1
    sent: int = 0
    send_failed: int = 0
    consumed: int = 0
    consume_failed: int = 0
    retried: int = 0
    never_consumed: int = 0
    stages: list[dict[str, Any]] = field(default_factory=list)  # by stage, topic and group: count, p50, p95, p99, max
    timeline: list[dict[str, Any]] = field(default_factory=list)  # by time and stage: count, p50, p99
    histogram: list[dict[str, Any]] = field(default_factory=list)  # by stage and power of two in ms: count
    slowest: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)  # sent and never delivered, in topics with consumers


def trace(
    spark: Any, options: Mapping[str, str], *, trace_topic: str = TRACE_TOPIC, stored: bool = True, samples: int = 20
) -> TraceReport:
    """Build the report. `options` are those of the data source (`nameServer`, ...). `stored`: include store times."""
    given = {name: text for name, text in options.items() if name not in ("subscribe", "columns")}
    body = spark.read.format("rocketmq").options(**given, subscribe=trace_topic).schema("body string").load()
    pub, sub = contexts(body)
    pub, sub = pub.cache(), sub.cache()
    events = _events(pub, sub)
    if stored:
        events = events.unionByName(_stored(spark, pub, given))
    events = events.cache()
    try:
        return _report(pub, sub, events, samples)
    finally:
        for frame in (events, sub, pub):
            frame.unpersist()


def contexts(body: Any) -> tuple[Any, Any]:
    """Parse trace messages into sends and consumptions. Fields missing in messages of older clients are null."""
    parts = body.selectExpr("explode(split(body, '\\u0002')) AS context").selectExpr("split(context, '\\u0001') AS f")
    pub = parts.where("f[0] = 'Pub'").selectExpr(
        f"{_number(1)} AS time_ms", "get(f, 3) AS group", "get(f, 4) AS topic", "get(f, 5) AS msg_id", "get(f, 6) AS tags",
        f"{_number(10)} AS cost_ms", "coalesce(get(f, 13), get(f, 12)) = 'true' AS ok",
    )  # fmt: skip
    before = parts.where("f[0] = 'SubBefore'").selectExpr(
        f"{_number(1)} AS time_ms",
        "get(f, 3) AS group",
        "get(f, 4) AS request",
        "get(f, 5) AS msg_id",
        f"{_number(6)} AS retries",
    )
    after = parts.where("f[0] = 'SubAfter'").selectExpr(
        "get(f, 1) AS request", "get(f, 2) AS msg_id", f"{_number(3)} AS cost_ms", "get(f, 4) = 'true' AS ok"
    )
    return pub.dropDuplicates(["msg_id", "time_ms"]), before.join(after, ["request", "msg_id"], "left")


def _number(place: int) -> str:
    return f"try_cast(get(f, {place}) AS bigint)"


def _events(pub: Any, sub: Any) -> Any:
    """Return one row per message and stage: stage, topic, group, msg_id, time_ms, ms."""
    sends = pub.where("ok").selectExpr("'send' AS stage", "topic", "group", "msg_id", "time_ms", "cost_ms AS ms")
    met = sub.withColumnsRenamed({"group": "consumer", "time_ms": "got_ms", "cost_ms": "took_ms", "ok": "consumed"}).join(
        pub.select("msg_id", "topic", "time_ms", "cost_ms"), "msg_id"
    )
    consumptions = met.selectExpr(
        "topic", "consumer AS group", "msg_id", "got_ms AS time_ms",
        """stack(3, 'wait', CASE WHEN retries = 0 THEN greatest(0, got_ms - time_ms - cost_ms) END,
                    'consume', took_ms,
                    'end_to_end', CASE WHEN consumed THEN greatest(0, got_ms + took_ms - time_ms) END) AS (stage, ms)""",
    )  # fmt: skip
    return sends.unionByName(consumptions.where("ms IS NOT NULL").select("stage", "topic", "group", "msg_id", "time_ms", "ms"))


def _stored(spark: Any, pub: Any, given: Mapping[str, str]) -> Any:
    """Return the stage `store` of messages that are still in their topics."""
    client = {name: text for name, text in given.items() if name in CLIENT_OPTIONS}
    known = {row.topic for row in pub.select("topic").distinct().collect()}
    there = sorted(known & set(cluster_client(read_options({**client, "subscribe": "any"}).client()).topics()))
    first = pub.selectExpr("min(time_ms) AS first").collect()[0].first
    if not there or first is None:
        return spark.createDataFrame([], _EVENT)
    reader = spark.read.format("rocketmq").options(
        **client, subscribe=",".join(there), startingTimestamp=str(max(0, first - 1000))
    )
    messages = reader.option("columns", "topic,msgId,bornTimestamp,storeTimestamp").load()
    messages = messages.selectExpr(
        "msgId AS msg_id", "timestampdiff(MILLISECOND, bornTimestamp, storeTimestamp) AS ms",
    )  # fmt: skip
    joined = pub.select("msg_id", "topic", "group", "time_ms").join(messages, "msg_id")
    return joined.selectExpr("'store' AS stage", "topic", "group", "msg_id", "time_ms", "greatest(0, ms) AS ms")


_EVENT: Final = "stage string, topic string, group string, msg_id string, time_ms bigint, ms bigint"


def _report(pub: Any, sub: Any, events: Any, samples: int) -> TraceReport:
    from pyspark.sql import functions as sql

    report = TraceReport()
    sends = pub.selectExpr("count(*) AS n", "count_if(NOT ok) AS bad", "min(time_ms) AS first", "max(time_ms) AS last").collect()[
        0
    ]
    report.sent, report.send_failed = sends.n, sends.bad
    consumed = sub.selectExpr(
        "count_if(ok) AS n", "count_if(NOT ok) AS bad", "count_if(retries > 0) AS again", "max(time_ms) AS last"
    )
    taken = consumed.collect()[0]
    report.consumed, report.consume_failed, report.retried = taken.n, taken.bad, taken.again
    report.first_ms = sends.first or 0
    report.last_ms = max(sends.last or 0, taken.last or 0)
    report.bucket_ms = max(1, -(-(report.last_ms - report.first_ms + 1) // BUCKETS))
    points = sql.expr("percentile_approx(ms, array(0.5, 0.95, 0.99)) AS p")
    count, longest = sql.count("*").alias("count"), sql.max("ms").alias("max")
    for row in events.groupBy("stage", "topic", "group").agg(count, points, longest).collect():
        found = dict(zip(_PERCENTILES, row.p, strict=True))
        report.stages.append(
            {"stage": row.stage, "topic": row.topic, "group": row.group, "count": row["count"], **found, "max": row.max}
        )
    report.stages.sort(key=lambda one: (STAGES.index(one["stage"]), one["topic"], one["group"]))
    moment = sql.expr(f"{report.first_ms} + (time_ms - {report.first_ms}) div {report.bucket_ms} * {report.bucket_ms} AS at_ms")
    for row in events.groupBy(moment, "stage").agg(count, points).orderBy("at_ms").collect():
        report.timeline.append({"at_ms": row.at_ms, "stage": row.stage, "count": row["count"], "p50": row.p[0], "p99": row.p[2]})
    size = sql.expr("CASE WHEN ms < 1 THEN 0 ELSE cast(floor(log2(ms)) AS int) + 1 END AS power")
    for row in events.groupBy("stage", size).agg(count).orderBy("stage", "power").collect():
        report.histogram.append({"stage": row.stage, "power": row.power, "count": row["count"]})
    ends = events.where("stage = 'end_to_end'").orderBy(sql.desc("ms"), "msg_id").limit(samples)
    report.slowest = [row.asDict() for row in ends.select("msg_id", "topic", "group", "time_ms", "ms").collect()]
    heard = sub.join(pub.select("msg_id", "topic"), "msg_id").select("topic").distinct()
    lost = pub.where("ok").join(sub.select("msg_id").distinct(), "msg_id", "left_anti").join(heard, "topic")
    report.never_consumed = lost.count()
    rows = lost.orderBy("time_ms").limit(samples).select("msg_id", "topic", "tags", "time_ms").collect()
    report.lost = [row.asDict() for row in rows]
    return report
