"""Report of flaky tests: tests that failed and passed when they were repeated (`--reruns`, see .ci/run)."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = {report.nodeid for report in terminalreporter.stats.get("passed", [])}
    repeated = {report.nodeid for report in terminalreporter.stats.get("rerun", [])}
    for nodeid in sorted(repeated & passed):
        terminalreporter.write_line(f"FLAKY {nodeid}", yellow=True)
