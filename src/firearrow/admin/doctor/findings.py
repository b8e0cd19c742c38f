"""What the doctor found, and what was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SEVERITIES: Final = (ERROR, WARNING, NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    severity: str
    check: str
    subject: str
    cause: str
    fix: str = ""


@dataclass(slots=True)
class Report:
    """`checked`: check -> how many things were looked at."""

    findings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    def add(self, severity: str, check: str, subject: str, cause: str, fix: str = "") -> None:
        self.findings.append(Finding(severity, check, subject, cause, fix))

    def looked_at(self, check: str, count: int = 1) -> None:
        self.checked[check] = self.checked.get(check, 0) + count

    def worst(self) -> str | None:
        return next((one for one in SEVERITIES if any(found.severity == one for found in self.findings)), None)
