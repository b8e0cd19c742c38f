"""Settings of all tests.

- Hypothesis has no deadlines: a busy machine must not fail a test.
- Tests that failed and passed when repeated (`--reruns`, see .ci/run) are reported as FLAKY.
"""

from __future__ import annotations

import hypothesis
import pytest

hypothesis.settings.register_profile("firearrow", deadline=None)
hypothesis.settings.load_profile("firearrow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = {report.nodeid for report in terminalreporter.stats.get("passed", [])}
    repeated = {report.nodeid: report for report in terminalreporter.stats.get("rerun", [])}
    for nodeid in sorted(repeated.keys() & passed):
        terminalreporter.write_line(f"FLAKY {nodeid}", yellow=True)
        terminalreporter.write_line(repeated[nodeid].longreprtext)
