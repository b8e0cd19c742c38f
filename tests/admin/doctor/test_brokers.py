from __future__ import annotations

import pytest

from firearrow.admin.cluster import BrokerAddress
from firearrow.admin.doctor.brokers import broker_clock_ms, check_damage, check_disk, parse_bytes
from firearrow.admin.doctor.findings import ERROR, WARNING, Report

BROKER = BrokerAddress("c", "broker-a", 0, "127.0.0.1:10911")


@pytest.mark.parametrize(
    ("ratio", "severity", "text"),
    [
        ("0.95", ERROR, "rejects messages"),
        ("0.86", ERROR, "deletes the oldest"),
        ("0.80", WARNING, "at any hour"),
        ("0.5", None, ""),
    ],
)
def test_disk_usage_is_compared_with_the_watermarks(ratio: str, severity: str | None, text: str) -> None:
    report = Report()
    check_disk(report, BROKER, {"commitLogDiskRatio": ratio}, {"fileReservedTime": "48"})
    if severity is None:
        assert report.findings == []
    else:
        (finding,) = report.findings
        assert finding.severity == severity
        assert text in finding.cause
        assert "fileReservedTime=HOURS (it is 48)" in finding.fix


@pytest.mark.parametrize(("status", "count"), [({}, 0), ({"damagedLogBytes": "300", "damagedMessages": "2"}, 1)])
def test_damaged_log_is_an_error(status: dict[str, str], count: int) -> None:
    report = Report()
    check_damage(report, BROKER, status)
    assert len(report.findings) == count
    assert all("300 bytes" in one.cause and one.severity == ERROR for one in report.findings)


def test_values_of_the_runtime_information_are_parsed() -> None:
    assert parse_bytes("0 B") == 0
    assert parse_bytes("1.5 MiB") == 3 << 19
    assert parse_bytes("") == 0
    status = {"bootTimestamp": "1000000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}
    assert broker_clock_ms(status) == 1_000_000 + ((26 * 60 + 3) * 60 + 4) * 1000
    assert broker_clock_ms({}) is None
