from __future__ import annotations

import pytest

from firearrow.client.namespaces import with_namespace, without_namespace


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("topic", "NS%topic"),
        ("%RETRY%group", "%RETRY%NS%group"),
        ("%DLQ%group", "%DLQ%NS%group"),
        ("other%topic", "NS%other%topic"),
    ],
)
def test_names_round_trip(name: str, full: str) -> None:
    assert with_namespace(name, "NS") == full
    assert with_namespace(full, "NS") == full
    assert without_namespace(full, "NS") == name
    assert without_namespace(name, "NS") == name
    assert with_namespace(name, "") == without_namespace(name, "") == name


@pytest.mark.parametrize("name", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"])
def test_system_names_have_no_namespace(name: str) -> None:
    assert with_namespace(name, "NS") == name
