"""Statistics of messages per topic, per group and in total: by minute, hour and day (315), and as rates (28).

The hot paths add to plain attributes of an object that they look up once and keep (`topic_put`), or once per batch. Everything
else is done by `tick`, which samples the totals:

    window   sampled every   kept   the sum of a window is the newest sample minus the oldest, its rate the sum over their time
    minute   10 s            7
    hour     10 min          7
    day      1 h             25

Rates for the broker as a whole come from one sample a second, kept for ten minutes.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from firearrow.wire.bodies.admin import BrokerStatsItem


class Histogram:
    """Counts of values, as in Prometheus. `edges` are upper bounds; larger values go into one more count."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total: float = 0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield (upper edge, number of values not above it); the last is for all values."""
        below = 0
        for edge, count in zip((*self.edges, None), self.counts, strict=True):
            below += count
            yield "+Inf" if edge is None else str(float(edge)), below


EDGES_MS = (10, 100, 1_000, 3_000, 5_000)  # Apache's


class CreationLatency:
    """Latency of creating or changing topics or groups by administrative requests, by (success, system)."""

    def __init__(self) -> None:
        self.took: dict[tuple[bool, bool], Histogram] = defaultdict(partial(Histogram, EDGES_MS))

    @contextmanager
    def timed(self, *, system: bool) -> Iterator[None]:
        began, done = time.perf_counter(), False
        try:
            yield
            done = True
        finally:
            self.took[done, system].add(int((time.perf_counter() - began) * 1000))


_SECOND_MS = 1_000
_WINDOWS = ((10_000, 7), (600_000, 7), (3_600_000, 25))  # (ms between samples, how many are kept): minute, hour, day
_SECONDS_KEPT = 601
# Upper edges, in ms, of the distribution of put times; longer times go into one more count.
PUT_TIME_EDGES = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)


# Upper edges of the sizes of messages, in bytes, and of the times of requests and transactions, in ms and s: Apache's.
SIZE_EDGES = (1_024, 4_096, 524_288, 1_048_576, 2_097_152, 4_194_304)
REQUEST_EDGES_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
FINISH_EDGES_S = (5, 60, 600, 3_600, 43_200, 86_400)
SMALL = SIZE_EDGES[0]  # messages that are not larger are not counted by size: they are all the others


class TopicPutStats:
    """Messages sent to a topic. Updated by the send path."""

    __slots__ = ("_larger", "nums", "size")

    def __init__(self) -> None:
        self.nums = 0
        self.size = 0
        self._larger: Histogram | None = None

    def add(self, nums: int, size: int) -> None:
        self.nums += nums
        self.size += size
        if size > SMALL * nums:
            self.larger(size // nums, nums)

    def larger(self, size: int, nums: int = 1) -> None:
        """Count messages larger than SMALL, already included in `nums` and `size`. Of a batch, the average size counts."""
        if self._larger is None:
            self._larger = Histogram(SIZE_EDGES)
        self._larger.add(size, nums)

    def sizes(self) -> Histogram:
        sizes = Histogram(SIZE_EDGES)
        if self._larger is not None:
            sizes.counts = list(self._larger.counts)
        sizes.counts[0] = self.nums - sum(sizes.counts[1:])
        sizes.total = self.size
        return sizes


@dataclass(slots=True)
class GroupGetStats:
    """Messages of a topic pulled by a group. Updated by the pull path."""

    nums: int = 0
    size: int = 0
    times: int = 0


class _Item:
    """Samples (ms, value, times) of one statistic for each window."""

    __slots__ = ("windows",)

    def __init__(self) -> None:
        self.windows: tuple[deque[tuple[int, int, int]], ...] = tuple(deque(maxlen=kept) for _, kept in _WINDOWS)

    def sample(self, window: int, now_ms: int, value: int, times: int) -> None:
        self.windows[window].append((now_ms, value, times))

    def snapshot(self, window: int) -> BrokerStatsItem:
        samples = self.windows[window]
        if len(samples) < 2:
            return BrokerStatsItem()
        (first_ms, first, first_times), (last_ms, last, last_times) = samples[0], samples[-1]
        total, times = last - first, last_times - first_times
        return BrokerStatsItem(
            sum=total,
            tps=total * 1000.0 / (last_ms - first_ms) if last_ms > first_ms else 0.0,
            avgpt=total / times if times else 0.0,
        )


class BrokerStats:
    def __init__(self, cluster: str, now_ms: int) -> None:
        self.cluster = cluster
        self.put_failed = 0
        self.get_found = 0  # pulls that returned something
        self.get_miss = 0  # pulls that did not
        self.put_time_counts = [0] * (len(PUT_TIME_EDGES) + 1)
        self.put_time_max_ms = 0
        # (request code, response code) -> ms until it was answered
        self.requests: dict[tuple[int, int], Histogram] = defaultdict(partial(Histogram, REQUEST_EDGES_MS))
        # Transactions by topic: how many were decided, and the age of the committed ones in s
        self.committed: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        self.finished: dict[str, Histogram] = defaultdict(partial(Histogram, FINISH_EDGES_S))
        self.topics_created, self.groups_created = CreationLatency(), CreationLatency()
        self._topic_put: dict[str, TopicPutStats] = defaultdict(TopicPutStats)
        self._group_get: dict[str, GroupGetStats] = defaultdict(GroupGetStats)
        self._sent_back: Counter[str] = Counter()
        self._dropped_put = TopicPutStats()  # totals of deleted topics and groups, so that sums never fall
        self._dropped_get = GroupGetStats()
        self._items: dict[tuple[str, str], _Item] = {}
        self._next_sample_ms = [now_ms + every for every, _ in _WINDOWS]
        self._seconds: deque[tuple[int, int, int, int, int]] = deque(maxlen=_SECONDS_KEPT)
        self._next_second_ms = now_ms
        self._day = _local_day(now_ms)
        self._put_mornings = (0, 0)  # yesterday's, today's
        self._get_mornings = (0, 0)

    # Hot paths.

    def topic_put(self, topic: str) -> TopicPutStats:
        """Return the counters of a topic: messages in `nums`, bytes of their records in `size`."""
        return self._topic_put[topic]

    def group_get(self, group: str, topic: str) -> GroupGetStats:
        """Return the counters of a group and topic, for `got`."""
        return self._group_get[f"{topic}@{group}"]

    def got(self, stats: GroupGetStats, nums: int, size: int) -> None:
        """Count a pull that returned `nums` messages of `size` bytes in total."""
        stats.nums += nums
        stats.size += size
        stats.times += 1
        self.get_found += 1

    def missed(self) -> None:
        """Count a pull without messages."""
        self.get_miss += 1

    def put_took(self, ms: int, count: int, request_code: int) -> None:
        """Count `count` messages stored `ms` after their arrival. Called once per batch, with the code of the first."""
        self.served(request_code, 0, ms, count)
        self.put_time_counts[bisect_left(PUT_TIME_EDGES, ms)] += count
        if ms > self.put_time_max_ms:
            self.put_time_max_ms = ms

    def served(self, request_code: int, response_code: int, ms: int, times: int = 1) -> None:
        """Count requests answered `ms` after their arrival. Not called for long-polling pulls."""
        self.requests[request_code, response_code].add(ms, times)

    def decided(self, topic: str, commit: bool, age_ms: int) -> None:
        """Count a committed or rolled back transaction."""
        (self.committed if commit else self.rolled_back)[topic] += 1
        if commit:
            self.finished[topic].add(age_ms // 1000)

    def sent_back(self, topic: str, group: str) -> None:
        self._sent_back[f"{topic}@{group}"] += 1

    # Events.

    def tick(self, now_ms: int) -> None:
        """Called once a second or so."""
        if now_ms >= self._next_second_ms:
            self._next_second_ms = now_ms + _SECOND_MS
            self._seconds.append((now_ms, self.put_nums(), self.get_found, self.get_miss, self.get_nums()))
        for window, (every, _) in enumerate(_WINDOWS):
            if now_ms >= self._next_sample_ms[window]:
                self._next_sample_ms[window] = now_ms + every
                self._sample(window, now_ms)
        day = _local_day(now_ms)
        if day != self._day:
            self._day = day
            self._put_mornings = (self._put_mornings[1], self.put_nums())
            self._get_mornings = (self._get_mornings[1], self.get_nums())

    def topic_deleted(self, topic: str) -> None:
        put = self._topic_put.pop(topic, None)
        if put is not None:
            self._dropped_put.nums += put.nums
            self._dropped_put.size += put.size
        for table in (self.committed, self.rolled_back, self.finished):
            table.pop(topic, None)
        self._drop_groups([key for key in {**self._group_get, **self._sent_back} if key.partition("@")[0] == topic])
        self._items = {(name, key): item for (name, key), item in self._items.items() if key.partition("@")[0] != topic}

    def group_deleted(self, group: str) -> None:
        self._drop_groups([key for key in {**self._group_get, **self._sent_back} if key.partition("@")[2] == group])
        self._items = {(name, key): item for (name, key), item in self._items.items() if key.partition("@")[2] != group}

    # Answers.

    def put_nums(self) -> int:
        return self._dropped_put.nums + sum(stats.nums for stats in self._topic_put.values())

    def put_size(self) -> int:
        return self._dropped_put.size + sum(stats.size for stats in self._topic_put.values())

    def get_nums(self) -> int:
        return self._dropped_get.nums + sum(stats.nums for stats in self._group_get.values())

    def topics_put(self) -> list[tuple[str, TopicPutStats]]:
        """Return (topic, counters)."""
        return list(self._topic_put.items())

    def groups_got(self) -> Iterator[tuple[str, str, GroupGetStats]]:
        """Yield (topic, group, counters) of all current groups."""
        return ((*_split(key), got) for key, got in list(self._group_get.items()))

    def groups_sent_back(self) -> Iterator[tuple[str, str, int]]:
        """Yield (topic, group, messages sent back) of all current groups."""
        return ((*_split(key), times) for key, times in list(self._sent_back.items()))

    def view(self, name: str, key: str) -> tuple[BrokerStatsItem, BrokerStatsItem, BrokerStatsItem] | None:
        """Return (minute, hour, day) of a statistic; None if it does not exist."""
        item = self._items.get((name, key))
        if item is None:
            if not any((name, key) == (other, k) for other, k, _, _ in self._totals()):
                return None
            return BrokerStatsItem(), BrokerStatsItem(), BrokerStatsItem()  # too young to have been sampled twice
        return item.snapshot(0), item.snapshot(1), item.snapshot(2)

    def tps(self, name: str, key: str) -> float:
        """Return messages per second over the last minute."""
        snapshots = self.view(name, key)
        return 0.0 if snapshots is None else snapshots[0].tps

    def rates(self) -> dict[str, tuple[float, float, float]]:
        """Return putTps, getFoundTps, getMissTps, getTotalTps and getTransferredTps over 10 s, 60 s and 600 s."""
        names = {"putTps": 1, "getFoundTps": 2, "getMissTps": 3, "getTransferredTps": 4}
        table = {name: (self._rate(at, 10), self._rate(at, 60), self._rate(at, 600)) for name, at in names.items()}
        found, miss = table["getFoundTps"], table["getMissTps"]
        table["getTotalTps"] = (found[0] + miss[0], found[1] + miss[1], found[2] + miss[2])
        return table

    def day_totals(self) -> dict[str, int]:
        return {
            "msgPutTotalYesterdayMorning": self._put_mornings[0],
            "msgPutTotalTodayMorning": self._put_mornings[1],
            "msgPutTotalTodayNow": self.put_nums(),
            "msgGetTotalYesterdayMorning": self._get_mornings[0],
            "msgGetTotalTodayMorning": self._get_mornings[1],
            "msgGetTotalTodayNow": self.get_nums(),
        }

    # Inside.

    def _totals(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield (statistic, key, total value, total times)."""
        for topic, put in self._topic_put.items():
            yield "TOPIC_PUT_NUMS", topic, put.nums, put.nums
            yield "TOPIC_PUT_SIZE", topic, put.size, put.nums
        for key, got in self._group_get.items():
            yield "GROUP_GET_NUMS", key, got.nums, got.times
            yield "GROUP_GET_SIZE", key, got.size, got.times
        for key, times in self._sent_back.items():
            yield "SNDBCK_PUT_NUMS", key, times, times
        yield "BROKER_PUT_NUMS", self.cluster, self.put_nums(), self.put_nums()
        yield "BROKER_GET_NUMS", self.cluster, self.get_nums(), self.get_nums()

    def _sample(self, window: int, now_ms: int) -> None:
        for name, key, value, times in self._totals():
            item = self._items.get((name, key))
            if item is None:
                item = self._items[name, key] = _Item()
                # It began after the last sample, at 0: without a first sample its first messages would never count.
                for other, (every, _) in enumerate(_WINDOWS):
                    item.sample(other, self._next_sample_ms[other] - every if other != window else now_ms - every, 0, 0)
            item.sample(window, now_ms, value, times)

    def _rate(self, at: int, seconds: int) -> float:
        if len(self._seconds) < 2:
            return 0.0
        last = self._seconds[-1]
        first = self._seconds[max(0, len(self._seconds) - 1 - seconds)]
        return (last[at] - first[at]) * 1000.0 / (last[0] - first[0]) if last[0] > first[0] else 0.0

    def _drop_groups(self, keys: list[str]) -> None:
        for key in keys:
            self._sent_back.pop(key, None)
            got = self._group_get.pop(key, None)
            if got is not None:
                self._dropped_get.nums += got.nums
                self._dropped_get.size += got.size


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _local_day(now_ms: int) -> tuple[int, int]:
    moment = time.localtime(now_ms / 1000)
    return moment.tm_year, moment.tm_yday
