"""`firearrow doctor`: the findings of admin/doctor, the worst first."""

from __future__ import annotations

from dataclasses import asdict

import click

from firearrow.admin.aio import Admin
from firearrow.admin.doctor.findings import ERROR, NOTE, WARNING
from firearrow.cli.command import FAILURE, SUCCESS, admin_command
from firearrow.cli.terminal import Output, plural

_SINGULAR = {"addresses": "address", "processes": "process"}
_STYLES = {ERROR: "bold red", WARNING: "yellow", NOTE: "dim"}


@admin_command("doctor")
@click.option("--strict", is_flag=True, help="Exit with code 1 for warnings too.")
async def doctor(admin: Admin, out: Output, strict: bool) -> int:
    """Check a cluster for problems and say how to fix them. The exit code is 1 if there is an error."""
    report = await admin.examine()
    if out.for_people:
        for finding in report.findings:
            out.text((finding.severity.upper(), _STYLES[finding.severity]), " ", (finding.subject, "bold"), f": {finding.cause}")
            if finding.fix:
                out.text(f"    fix: {finding.fix}")
        problems = sum(finding.severity != NOTE for finding in report.findings)
        verdict = (plural(problems, "problem"), "bold") if problems else ("no problems", "green")
        checked = [plural(count, _SINGULAR.get(check, check[:-1]), check) for check, count in report.checked.items()]
        out.text(verdict, f"; checked {', '.join(checked)}")
    else:
        out.rows([asdict(finding) for finding in report.findings], ["severity", "check", "subject", "cause", "fix"])
    worst = report.worst()
    return FAILURE if worst == ERROR or (strict and worst == WARNING) else SUCCESS
