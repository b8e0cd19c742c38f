"""Page of `firearrow spark lag`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from firearrow.spark.pipelines.lag import GroupLag
from firearrow.spark.reports.charts import bars, lines
from firearrow.spark.reports.html import card, count, duration_ms, hint, moment, page, pair, rate, section, table, tiles

_LINES = 6
_GROUPS = 12  # with a section of their own
_QUEUES = 32


def lag_page(groups: Sequence[GroupLag], cluster: str) -> str:
    times = [at for one in groups for at, _ in one.history]
    if not times:
        return page("Consumer lag", f"Cluster {cluster}.", [hint("No group has committed an offset.")])
    first, last = min(times), max(times)
    seen = f"{moment(first)} to {moment(last)} ({duration_ms(last - first)})" if last > first else f"at {moment(last)}"
    parts = [_tiles(groups)]
    if last > first:
        drawn = [one for one in groups if any(value for _, value in one.history)][:_LINES]
        chart = lines([(f"{one.group} · {one.topic}", one.history) for one in drawn])
        more = hint(f"The {_LINES} largest of {len(groups)}.") if len(groups) > _LINES else ""
        parts.append(section("Messages not yet consumed", card(chart if drawn else hint("No group had a lag."), more)))
    parts.append(section("Groups", card(_groups(groups))))
    behind = [one for one in groups if one.lag][:_GROUPS]
    if behind:
        parts.append(section("Where it waits", pair(_queues(one) for one in behind)))
    return page("Consumer lag", f"Cluster {cluster}, {seen}.", parts)


def _tiles(groups: Sequence[GroupLag]) -> str:
    lag = sum(one.lag for one in groups)
    behind = sum(bool(one.lag) for one in groups)
    lost = sum(one.lost for one in groups)
    known = [one.consumed_a_second for one in groups if one.consumed_a_second is not None]
    return tiles([
        ("messages waiting", count(lag), "warn" if lag else "good"),
        ("groups and topics behind", f"{behind} of {len(groups)}", "warn" if behind else "good"),
        ("consumed", rate(sum(known)) if known else "-", ""),
        ("deleted before they were consumed", count(lost), "bad" if lost else "good"),
    ])  # fmt: skip


def _groups(groups: Sequence[GroupLag]) -> str:
    rows = []
    for one in groups:
        idle = None if one.last_consumed_ms is None else time.time() * 1000 - one.last_consumed_ms
        rows.append([
            one.group, one.topic, (one.lag, "warn" if one.lag else ""), rate(one.produced_a_second), rate(one.consumed_a_second),
            _catch_up(one), f"{duration_ms(idle)} ago" if idle is not None else "-", _risk(one),
        ])  # fmt: skip
    names = ["group", "topic", "lag", "produced", "consumed", "caught up in", "last consumed was stored", "retention"]
    return table(names, rows) + hint(
        "Caught up in: at the rate of the period shown. Retention: part of the worst queue left before messages are "
        "deleted unread."
    )


def _catch_up(one: GroupLag) -> tuple[str, str]:
    if not one.lag:
        return "now", "good"
    if one.consumed_a_second is None:
        return "-", ""
    if one.seconds_to_catch_up is None:
        return "never", "bad"
    return duration_ms(one.seconds_to_catch_up * 1000), ""


def _risk(one: GroupLag) -> tuple[str, str]:
    if one.lost:
        return f"{count(one.lost)} lost", "bad"
    if one.room is None:
        return "-", ""
    return f"{one.room:.0%}", "bad" if one.room < 0.1 else "warn" if one.room < 0.3 else ""


def _queues(one: GroupLag) -> str:
    worst = sorted(one.by_queue, key=lambda queue: -queue["lag"])[:_QUEUES]
    shown = bars([(queue["queue"], queue["lag"], count(queue["lag"])) for queue in worst])
    more = hint(f"The {_QUEUES} largest of {len(one.by_queue)} queues.") if len(one.by_queue) > _QUEUES else ""
    return card(shown, more, title=f"{one.group} · {one.topic}")
