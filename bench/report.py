"""Formatting of results: medians over turns, ratios of ours to the reference, and limits met or missed.

The ratio of a load is the median of the ratios of its turns, whose two runs are consecutive. A limit that cannot be checked,
because only one broker was measured, is not missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.load import LoadResult
from bench.loads import Load

METRICS = {"msgs/s": "msgs_per_s", "CPU us/msg": "cpu_us_per_msg", "p50 ms": "p50_ms", "p99 ms": "p99_ms", "p99.9 ms": "p999_ms"}


@dataclass(frozen=True)
class Comparison:
    """Results of one load on both brokers, turn by turn. One of them may be empty."""

    load: Load
    ours: Sequence[LoadResult]
    reference: Sequence[LoadResult]

    def ratio(self, metric: str) -> float | None:
        turns = zip(self.ours, self.reference, strict=False)
        ratios = [getattr(ours, metric) / getattr(reference, metric) for ours, reference in turns if getattr(reference, metric)]
        return median(ratios) if ratios else None

    def missed(self) -> list[str]:
        bars = self.load.bars
        missed = [result.fault for result in self.ours if result.fault]  # any fault is a miss
        rate, cpu, tail = (self.ratio(metric) for metric in ("msgs_per_s", "cpu_us_per_msg", "p999_ms"))
        if rate is not None and bars.rate_at_least is not None and rate < bars.rate_at_least:
            missed.append(f"rate {rate:.2f} < {bars.rate_at_least}")
        if cpu is not None and cpu > bars.cpu_at_most:
            missed.append(f"CPU {cpu:.2f} > {bars.cpu_at_most}")
        if tail is not None and bars.p999_at_most is not None and tail > bars.p999_at_most:
            missed.append(f"p99.9 {tail:.2f} > {bars.p999_at_most}")
        return missed

    def verdict(self) -> str:
        missed = self.missed()
        if missed:
            return "MISSED: " + ", ".join(missed)
        return "ok" if self.ratio("msgs_per_s") is not None else "-"


def comparison_table(comparisons: Sequence[Comparison], our_name: str, reference_name: str) -> str:
    rows = [[c.load.name, *(_cell(c, metric) for metric in METRICS.values()), c.verdict()] for c in comparisons]
    caption = f"Each cell: {our_name} : {reference_name} (medians) = median ratio of the turns."
    return caption + "\n\n" + table(["load", *METRICS, "bars"], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with aligned columns."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    cells = ([text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in [head, *rows])
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def number(value: float) -> str:
    """Format a value with its significant digits: 33,200, 8.74, 0.126."""
    decimals = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 1 else 3
    return f"{value:,.{decimals}f}"


@dataclass(frozen=True)
class Check:
    """A measured value and its limit; None: shown for comparison only."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    @property
    def missed(self) -> bool:
        if self.limit is None:
            return False
        return self.value < self.limit if self.at_least else self.value > self.limit

    def row(self) -> list[str]:
        bar = "" if self.limit is None else f"{'>=' if self.at_least else '<='} {number(self.limit)} {self.unit}".rstrip()
        verdict = "" if self.limit is None else "MISSED" if self.missed else "ok"
        return [self.what, f"{number(self.value)} {self.unit}".rstrip(), bar, verdict]


def check_table(checks: Sequence[Check]) -> str:
    return table(["what", "measured", "bar", ""], [check.row() for check in checks])


def _cell(comparison: Comparison, metric: str) -> str:
    ours, reference = (_median(results, metric) for results in (comparison.ours, comparison.reference))
    ratio = comparison.ratio(metric)
    return f"{ours} : {reference}" + ("" if ratio is None else f" = {ratio:.2f}")


def _median(results: Sequence[LoadResult], metric: str) -> str:
    return number(median(getattr(result, metric) for result in results)) if results else "-"
