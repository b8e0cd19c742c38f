"""How long it took to make or change topics and consumer groups when an operator asked for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from firearrow.broker.observability.histograms import Histogram

EDGES_MS = (10, 100, 1_000, 3_000, 5_000)  # Apache's


class CreationLatency:
    """`took` is by (whether it succeeded, whether it is one of the system's)."""

    def __init__(self) -> None:
        self.took: dict[tuple[bool, bool], Histogram] = {}

    @contextmanager
    def timed(self, *, system: bool) -> Iterator[None]:
        began, done = time.perf_counter(), False
        try:
            yield
            done = True
        finally:
            histogram = self.took.get((done, system))
            if histogram is None:
                histogram = self.took[done, system] = Histogram(EDGES_MS)
            histogram.add(int((time.perf_counter() - began) * 1000))
