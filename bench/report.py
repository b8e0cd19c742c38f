"""Numbers to tables: medians over rounds, ours divided by Apache's, bars kept or missed. No processes, no files.

A row's ratio is the ratio of the medians. A bar that cannot be judged, because only one of the two was measured, is not missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.load import LoadResult
from bench.loads import Load

METRICS = {"msgs/s": "msgs_per_s", "CPU us/msg": "cpu_us_per_msg", "p50 ms": "p50_ms", "p99 ms": "p99_ms", "p99.9 ms": "p999_ms"}


@dataclass(frozen=True)
class Comparison:
    """One load on both brokers: the medians of our rounds and of the reference's. One of them may not have been measured."""

    load: Load
    ours: Mapping[str, float] | None
    reference: Mapping[str, float] | None
    faults: Sequence[str]  # what went wrong with our messages; any is a miss

    def ratio(self, metric: str) -> float | None:
        if self.ours is None or self.reference is None or not self.reference[metric]:
            return None
        return self.ours[metric] / self.reference[metric]

    def missed(self) -> list[str]:
        bars, missed = self.load.bars, list(self.faults)
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


def medians(results: Sequence[LoadResult]) -> dict[str, float] | None:
    if not results:
        return None
    return {metric: median(getattr(result, metric) for result in results) for metric in METRICS.values()}


def compare(load: Load, ours: Sequence[LoadResult], reference: Sequence[LoadResult]) -> Comparison:
    return Comparison(load, medians(ours), medians(reference), [result.fault for result in ours if result.fault])


def comparison_table(comparisons: Sequence[Comparison], our_name: str, reference_name: str) -> str:
    rows = [[c.load.name, *(_cell(c, metric) for metric in METRICS.values()), c.verdict()] for c in comparisons]
    caption = f"Each cell: {our_name} : {reference_name} = ratio of the medians."
    return caption + "\n\n" + table(["load", *METRICS, "bars"], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in plain text too."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    cells = ([text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in [head, *rows])
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def number(value: float) -> str:
    """A value with the digits that mean something: 33,200 and 8.74 and 0.126."""
    decimals = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 1 else 3
    return f"{value:,.{decimals}f}"


@dataclass(frozen=True)
class Check:
    """A measured value beside its bar. `limit` None: shown for comparison, no bar."""

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
    ours = "-" if comparison.ours is None else number(comparison.ours[metric])
    reference = "-" if comparison.reference is None else number(comparison.reference[metric])
    ratio = comparison.ratio(metric)
    return f"{ours} : {reference}" + ("" if ratio is None else f" = {ratio:.2f}")
