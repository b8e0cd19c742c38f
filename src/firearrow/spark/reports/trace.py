"""Page of `firearrow spark trace`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from firearrow.spark.pipelines.trace import STAGES, TraceReport
from firearrow.spark.reports.charts import COLOURS, columns, lines
from firearrow.spark.reports.html import card, count, duration_ms, hint, moment, page, pair, section, table, tiles

TITLES: Final = {
    "send": "Send: from the call to the broker's answer",
    "store": "Store: from birth to the log",
    "wait": "Wait: from the answer to the consumer",
    "consume": "Consume: what the listener took",
    "end_to_end": "End to end: from the call to the end of the listener",
}


def trace_page(report: TraceReport, cluster: str) -> str:
    if not report.sent and not report.consumed:
        return page("Message latency", f"Cluster {cluster}.", [hint("The trace topic has no data for this time.")])
    about = f"Cluster {cluster}, {moment(report.first_ms)} to {moment(report.last_ms)}, from the trace topic."
    stages = [stage for stage in STAGES if any(one["stage"] == stage for one in report.stages)]
    parts = [
        _tiles(report),
        section("By topic and group", card(_table(report.stages))),
        section("Over time", pair(_timeline(report, stage) for stage in stages)),
        section("How many took how long", pair(_histogram(report, stage) for stage in stages)),
    ]
    if report.slowest:
        rows = [
            [(one["msg_id"], "code"), one["topic"], one["group"], moment(one["time_ms"]), duration_ms(one["ms"])]
            for one in report.slowest
        ]
        parts.append(section("Slowest end to end", card(table(["message", "topic", "group", "delivered", "took"], rows))))
    if report.lost:
        rows = [[(one["msg_id"], "code"), one["topic"], one["tags"], moment(one["time_ms"])] for one in report.lost]
        note = hint("Sent to topics with consumers, but no consumer reported them: in flight, filtered, or not traced.")
        parts.append(section("Never consumed", card(table(["message", "topic", "tags", "sent"], rows), note)))
    return page("Message latency", about, parts)


def _tiles(report: TraceReport) -> str:
    ends = [one for one in report.stages if one["stage"] == "end_to_end"]
    worst = max((one["p99"] for one in ends), default=None)
    return tiles([
        ("sent", count(report.sent), ""),
        ("sends failed", count(report.send_failed), "bad" if report.send_failed else "good"),
        ("consumed", count(report.consumed), ""),
        ("consumptions failed", count(report.consume_failed), "warn" if report.consume_failed else "good"),
        ("never consumed", count(report.never_consumed), "warn" if report.never_consumed else "good"),
        ("end to end, worst p99", duration_ms(worst), ""),
    ])  # fmt: skip


def _table(stages: Sequence[dict[str, Any]]) -> str:
    rows = [
        [one["stage"].replace("_", " "), one["topic"], one["group"], one["count"],
         *(duration_ms(one[name]) for name in ("p50", "p95", "p99", "max"))]
        for one in stages
    ]  # fmt: skip
    return table(["stage", "topic", "group", "messages", "p50", "p95", "p99", "longest"], rows)


def _timeline(report: TraceReport, stage: str) -> str:
    found = [one for one in report.timeline if one["stage"] == stage]
    series = [(name, [(one["at_ms"], one[name]) for one in found]) for name in ("p50", "p99")]
    colour = COLOURS[STAGES.index(stage)]
    faint = f"color-mix(in srgb, {colour} 60%, var(--card))"
    chart = lines(series, width=480, height=190, shown=duration_ms, colours=(colour, faint))
    return card(chart, title=TITLES[stage])


def _histogram(report: TraceReport, stage: str) -> str:
    found = {one["power"]: one["count"] for one in report.histogram if one["stage"] == stage}
    values = [(_range(power), found.get(power, 0)) for power in range(min(found), max(found) + 1)]
    return card(columns(values, colour=COLOURS[STAGES.index(stage)]), title=TITLES[stage])


def _range(power: int) -> str:
    return "<1 ms" if power == 0 else f"≥{duration_ms(2 ** (power - 1))}"
