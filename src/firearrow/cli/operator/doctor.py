"""`firearrow doctor`: the findings of admin/doctor.py, worst first. Exit code 1 if there is an error among them."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from firearrow.admin.aio import Admin
from firearrow.admin.doctor.findings import ERROR, NOTE, WARNING
from firearrow.cli.arguments import LineParser, prepare
from firearrow.cli.terminal import BOLD, DIM, GREEN, RED, YELLOW, Output

_COLOURS = {ERROR: RED, WARNING: YELLOW, NOTE: DIM}


def declare(parser: LineParser) -> None:
    prepare(parser, run)
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings, too")


async def run(admin: Admin, options: argparse.Namespace, out: Output) -> int:
    report = await admin.examine()
    columns = ["severity", "check", "subject", "cause", "fix"]
    if out.form != "table":
        out.rows([asdict(found) for found in report.findings], columns)
    else:
        for found in report.findings:
            severity = out.painted(found.severity.upper(), _COLOURS[found.severity])
            out.text(f"{severity} {out.painted(found.subject, BOLD)}: {found.cause}")
            if found.fix:
                out.text(f"    to mend it: {found.fix}")
        looked = ", ".join(f"{count:,} {check}" for check, count in report.checked.items())
        bad = sum(found.severity != NOTE for found in report.findings)
        verdict = out.painted("nothing is wrong", GREEN) if not bad else f"{bad} {'thing' if bad == 1 else 'things'} to mend"
        out.text(f"{verdict}; looked at {looked}")
    worst = report.worst()
    return 1 if worst == ERROR or (options.strict and worst == WARNING) else 0
