"""Charts as plain SVG and HTML, with tooltips in `title` elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape

from firearrow.spark.reports.html import count

Point = tuple[float, float]
Series = tuple[str, Sequence[Point]]
COLOURS = tuple(f"var(--s{number})" for number in range(1, 7))
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 26
_DOTS = 80  # maximum points of a line drawn with dots


def lines(
    series: Sequence[Series],
    *,
    width: int = 1000,
    height: int = 240,
    shown: Callable[[float], str] = count,
    colours: Sequence[str] = COLOURS,
) -> str:
    """Draw lines over time; x in milliseconds, y from 0."""
    points = [point for _, found in series for point in found]
    if not points:
        return '<p class="hint">Nothing to draw.</p>'
    first, last = min(point[0] for point in points), max(point[0] for point in points)
    top, step = _scale(max(point[1] for point in points))
    span = max(1.0, last - first)

    def x(at: float) -> float:
        return _LEFT + (at - first) / span * (width - _LEFT - _RIGHT) if last > first else (_LEFT + width - _RIGHT) / 2

    def y(value: float) -> float:
        return height - _BOTTOM - value / top * (height - _TOP - _BOTTOM)

    parts = [_grid(width, top, step, y, shown), _times(first, last, width, height)]
    for number, (name, found) in enumerate(series):
        colour = colours[number % len(colours)]
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in found)
        if len(found) > 1:
            if len(series) == 1:
                parts.append(_area(path, x(found[0][0]), x(found[-1][0]), y(0), colour))
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>')
        radius = 2.6 if len(found) <= _DOTS else 5
        opacity = "1" if len(found) <= _DOTS else "0"  # invisible, but with a tooltip
        for at, value in found:
            label = f"{name}: {shown(value)} at {_clock(at, span)}"
            parts.append(
                f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="{radius}" fill="{colour}" opacity="{opacity}">'
                f"<title>{escape(label)}</title></circle>"
            )
    legend = _legend([name for name, _ in series], colours) if len(series) > 1 else ""
    kind = ' class="wide"' if width >= 700 else ""
    return f'{legend}<svg{kind} viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'


def columns(
    values: Sequence[tuple[str, float]],
    *,
    width: int = 480,
    height: int = 180,
    colour: str = COLOURS[0],
    shown: Callable[[float], str] = count,
) -> str:
    """Draw vertical bars with labels below."""
    if not values:
        return '<p class="hint">Nothing to draw.</p>'
    top, step = _scale(max(value for _, value in values))
    room = (width - _LEFT - _RIGHT) / len(values)

    def y(value: float) -> float:
        return height - _BOTTOM - value / top * (height - _TOP - _BOTTOM)

    parts = [_grid(width, top, step, y, shown)]
    every = -(-len(values) // 8)
    for number, (label, value) in enumerate(values):
        left = _LEFT + number * room
        parts.append(
            f'<rect x="{left + room * 0.12:.1f}" y="{y(value):.1f}" width="{room * 0.76:.1f}" height="{y(0) - y(value):.1f}" '
            f'rx="2" fill="{colour}"><title>{escape(f"{label}: {shown(value)}")}</title></rect>'
        )
        if number % every == 0:
            parts.append(f'<text x="{left + room / 2:.1f}" y="{height - 8}" text-anchor="middle">{escape(label)}</text>')
    return f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'


def bars(values: Sequence[tuple[str, float, str]]) -> str:
    """Draw horizontal bars, each (label, value, text after the bar)."""
    most = max((value for _, value, _ in values), default=0) or 1
    return "".join(
        f'<div class="bar"><span title="{escape(label)}">{escape(label)}</span>'
        f'<div><u style="width:{100 * value / most:.2f}%"></u></div><span class="n">{escape(text)}</span></div>'
        for label, value, text in values
    )


def _legend(names: Sequence[str], colours: Sequence[str]) -> str:
    made = [
        f'<span><i style="background:{colours[number % len(colours)]}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    ]
    return f'<div class="legend">{"".join(made)}</div>'


def _grid(width: int, top: float, step: float, y: Callable[[float], float], shown: Callable[[float], str]) -> str:
    parts = []
    for number in range(round(top / step) + 1):
        value = number * step
        parts.append(f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--grid)"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(shown(value))}</text>')
    return "".join(parts)


def _times(first: float, last: float, width: int, height: int) -> str:
    ticks = 5 if width >= 700 else 3
    if last <= first:
        return f'<text x="{(_LEFT + width - _RIGHT) / 2}" y="{height - 8}" text-anchor="middle">{_clock(first, 0)}</text>'
    parts = []
    for number in range(ticks + 1):
        at = first + (last - first) * number / ticks
        x = _LEFT + number / ticks * (width - _LEFT - _RIGHT)
        anchor = "start" if number == 0 else "end" if number == ticks else "middle"
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="{anchor}">{_clock(at, last - first)}</text>')
    return "".join(parts)


def _area(path: str, first: float, last: float, base: float, colour: str) -> str:
    return f'<polygon points="{first:.1f},{base:.1f} {path} {last:.1f},{base:.1f}" fill="{colour}" opacity="0.12"/>'


def _clock(ms: float, span_ms: float) -> str:
    form = "%b %d %H:%M" if span_ms > 36 * 3_600_000 else "%H:%M" if span_ms > 3_600_000 else "%H:%M:%S"
    if span_ms < 10_000 and span_ms > 0:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)


def _scale(most: float) -> tuple[float, float]:
    """Return the end of the axis and the distance of its grid lines: about four lines at round numbers."""
    if most <= 0:
        return 1.0, 1.0
    power = 10 ** math.floor(math.log10(most / 4))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * 4 >= most or factor == 10)
    step = max(step, 1.0) if most >= 1 else step
    return step * math.ceil(most / step), step
