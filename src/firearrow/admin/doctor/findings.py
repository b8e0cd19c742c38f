"""Findings of the doctor and the number of checked objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SEVERITIES: Final = (ERROR, WARNING, NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: its subject, its cause and how to fix it."""

    severity: str
    check: str
    subject: str
    cause: str
    fix: str = ""


@dataclass(slots=True)
class Report:
    """The findings. `checked`: kind of object -> number of checked objects."""

    findings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    def add(self, severity: str, check: str, subject: str, cause: str, fix: str = "") -> None:
        self.findings.append(Finding(severity, check, subject, cause, fix))

    def count_checked(self, check: str, count: int = 1) -> None:
        self.checked[check] = self.checked.get(check, 0) + count

    def worst(self) -> str | None:
        """Return the highest severity; None without findings."""
        return next((one for one in SEVERITIES if any(found.severity == one for found in self.findings)), None)
