"""Self-contained HTML pages: one file, no scripts, light or dark by the reader's preference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #ffffff; --ink: #1b1f27; --soft: #667085; --line: #e3e6ec;
  --grid: #eceff4; --good: #067647; --warn: #b54708; --bad: #b42318;
  --s1: #2563eb; --s2: #d97706; --s3: #059669; --s4: #9333ea; --s5: #dc2626; --s6: #0891b2; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #12151b; --card: #1b2029; --ink: #e8ebf1; --soft: #98a2b3; --line: #2c3340; --grid: #262c37;
    --good: #47cd89; --warn: #fdb022; --bad: #f97066;
    --s1: #6ea8fe; --s2: #fbbf24; --s3: #34d399; --s4: #c084fc; --s5: #f87171; --s6: #22d3ee; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 36px 0 12px; }
h3 { font-size: 14px; margin: 0 0 8px; font-weight: 600; }
p.about { color: var(--soft); margin: 0 0 24px; }
p.hint { color: var(--soft); font-size: 13px; margin: 6px 0 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 14px 16px; }
.tile b { display: block; font-size: 24px; line-height: 1.25; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.card { padding: 16px 18px; margin-bottom: 14px; overflow-x: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(340px, 1fr)); gap: 14px; }
.pair .card { margin: 0; }
@media (max-width: 400px) { .pair { grid-template-columns: 1fr; } }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 13px; white-space: nowrap; }
th, td { padding: 7px 14px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; white-space: nowrap; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
code { font: 12.5px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, monospace; word-break: break-all; }
svg { display: block; width: 100%; height: auto; }
svg.wide { min-width: 640px; }
svg text { fill: var(--soft); font-size: 11px; font-family: inherit; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--soft); margin: 0 0 6px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.bar { display: grid; grid-template-columns: minmax(90px, 150px) 1fr 84px; gap: 10px; align-items: center; font-size: 13px;
  padding: 2px 0; }
.bar u { display: block; height: 12px; border-radius: 3px; background: var(--s1); min-width: 1px; }
.bar span { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
footer { color: var(--soft); font-size: 13px; margin-top: 40px; }
"""


def page(title: str, about: str, parts: Iterable[str]) -> str:
    made = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="about">{escape(about)}</p>{"".join(parts)}'
        f"<footer>Made by Firearrow on {escape(made)}. Times are UTC.</footer></main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<h2>{escape(title)}</h2>{''.join(parts)}"


def card(*parts: str, title: str = "") -> str:
    return f'<div class="card">{f"<h3>{escape(title)}</h3>" if title else ""}{"".join(parts)}</div>'


def pair(cards: Iterable[str]) -> str:
    """Arrange parts in columns if the page is wide enough."""
    return f'<div class="pair">{"".join(cards)}</div>'


def hint(text: str) -> str:
    return f'<p class="hint">{escape(text)}</p>'


def tiles(values: Iterable[tuple[str, str, str]]) -> str:
    """Show tiles, each (label, value, class); the class is good, warn, bad or empty."""
    made = [
        f'<div class="tile"><b class="{kind}">{escape(value)}</b><span>{escape(what)}</span></div>'
        for what, value, kind in values
    ]
    return f'<div class="tiles">{"".join(made)}</div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format a table with numbers and times right-aligned. A cell may be (text, class)."""
    rows = [list(row) for row in rows]
    right = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(columns))]
    head = "".join(
        f"<th{_class('n') if on_right else ''}>{escape(name)}</th>" for name, on_right in zip(columns, right, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(value, on_right) for value, on_right in zip(row, right, strict=True)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any, on_right: bool) -> str:
    text, kind = value if isinstance(value, tuple) else (value, "")
    classes = " ".join(part for part in (kind if kind != "code" else "", "n" if on_right else "") if part)
    shown = count(text) if isinstance(text, int) else "" if text is None else str(text)
    inner = f"<code>{escape(shown)}</code>" if kind == "code" else escape(shown)
    return f"<td{_class(classes)}>{inner}</td>"


def _is_number(value: Any) -> bool:
    text = value[0] if isinstance(value, tuple) else value
    return isinstance(text, (int, float)) or (isinstance(text, str) and text[:1].isdigit()) or text in ("-", "never", "now")


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def count(value: float) -> str:
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def duration_ms(value: float | None) -> str:
    """Format a duration: 340 ms, 2.1 s, 5 min, 3 h."""
    if value is None:
        return "-"
    if value < 1000:
        return f"{value:.0f} ms"
    seconds = value / 1000
    for limit, size, unit in ((100, 1, "s"), (6000, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}" if seconds / size < 10 else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def moment(ms: int | None) -> str:
    return "-" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
