"""Counts of values by size, as Prometheus's histograms have them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator


class Histogram:
    """`edges` are upper ones; what is larger than all of them goes into one more count."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total: float = 0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    def buckets(self) -> Iterator[tuple[str, int]]:
        """(upper edge, how many are not larger), the last for all."""
        below = 0
        for edge, count in zip((*self.edges, None), self.counts, strict=True):
            below += count
            yield "+Inf" if edge is None else str(float(edge)), below
