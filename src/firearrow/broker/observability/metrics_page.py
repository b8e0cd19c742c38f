"""How Prometheus's text is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from firearrow.broker.observability.histograms import Histogram

_AT_ONCE = 64  # lines in a piece

Labels = Mapping[str, str]


class ExpositionWriter:
    """Writes lines. Labels are sorted, and those that every line has are written once and kept."""

    def __init__(self, common: Labels) -> None:
        self._common = ",".join(f'{key}="{escaped(value)}"' for key, value in sorted(common.items()))

    def family(self, name: str, kind: str, text: str) -> str:
        return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"

    def line(self, name: str, labels: Labels, value: float) -> str:
        own = "".join(f',{key}="{escaped(text)}"' for key, text in labels.items())
        return f"{name}{{{self._common}{own}}} {value}\n"

    def lines(self, name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
        """A family of many lines; nothing at all if there are none."""
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
    """As a label's value is written. Names of topics and groups need none of it; what a client says of itself might."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text
