from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import names

GOOD = ("T", "Order-Events_2", "%RETRY%group", "ns%topic", "a|b", "t" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250)


@pytest.mark.parametrize("name", GOOD)
def test_these_may_be_topics(name: str) -> None:
    names.check_topic(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "blank"),
        ("  ", "blank"),
        *((name, "illegal characters") for name in ("../../x", "a/b", "a.b", "a b", "a\n", "a\0", "été")),
        ("t" * 128, "128 characters, longer than the maximum 127"),
        ("%RETRY%" + "g" * 249, "256 characters"),
    ],
)
def test_these_may_not(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        names.check_topic(name)


def test_groups_may_be_longer() -> None:
    names.check_group("g" * 255)
    with pytest.raises(ValueError, match=r"the specified group .* has 256 characters"):
        names.check_group("g" * 256)


@given(st.text(max_size=300))
def test_accepted_name_is_a_safe_directory_name(name: str) -> None:
    try:
        names.check_topic(name)
    except ValueError:
        return
    assert name
    assert not set(name) & set("./\\\0 \n")
    assert len(name.encode()) <= 255


def test_group_topics_and_system_names() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_wheel_timer")
    assert not names.is_system_topic("Orders")
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert names.is_system_group("TOOLS_CONSUMER")
    assert not names.is_system_group("g")
