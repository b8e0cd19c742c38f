"""Declaring, parsing and changing settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pytest

from firearrow.config.fields import SettingError, apply, as_properties, change, declared, setting
from firearrow.config.properties_file import format_properties, parse_properties
from firearrow.config.secret import Secret


class Flush(Enum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass
class Example:
    broker_ip1: str | None = setting(None, "advertised address")
    file_reserved_time: int = setting(72, "hours", low=1, high=1000, runtime=True)
    disk_max_used_space_ratio: float = setting(75.0, "percent", low=10, high=95, runtime=True)
    trace_on: bool = setting(True, runtime=True)
    flush_disk_type: Flush = setting(Flush.SYNC)
    broker_role: str = setting("ASYNC_MASTER", choices=("ASYNC_MASTER", "SLAVE"))
    check_crc: bool = setting(True, key="checkCRCOnRecover")
    start_time: int = setting(0)
    low: int = setting(1, low=0, runtime=True)
    high: int = setting(9, high=100, runtime=True)
    not_a_setting: list[int] = field(default_factory=list)

    def check(self) -> None:
        if self.low > self.high:
            raise SettingError("low", self.low, f"at most high={self.high}")


def test_keys_use_apaches_spelling() -> None:
    assert list(declared(Example)) == [
        "brokerIP1",
        "fileReservedTime",
        "diskMaxUsedSpaceRatio",
        "traceOn",
        "flushDiskType",
        "brokerRole",
        "checkCRCOnRecover",
        "startTime",
        "low",
        "high",
    ]


def test_values_are_parsed_by_type() -> None:
    example = Example()
    texts = {
        "brokerIP1": " 10.0.0.1 ",
        "fileReservedTime": "48",
        "diskMaxUsedSpaceRatio": "80.5",
        "traceOn": "FALSE",
        "flushDiskType": "ASYNC_FLUSH",
        "brokerRole": "SLAVE",
        "startTime": "-9223372036854775808",
    }
    assert apply([example], texts) == []
    assert example == Example("10.0.0.1", 48, 80.5, False, Flush.ASYNC, "SLAVE", start_time=-(2**63))
    assert apply([example], {"brokerIP1": ""}) == []
    assert example.broker_ip1 is None


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("fileReservedTime", "0", "setting fileReservedTime=0: expected a whole number from 1 to 1000"),
        ("fileReservedTime", "1001", "setting fileReservedTime=1001: expected a whole number from 1 to 1000"),
        ("fileReservedTime", "three", "setting fileReservedTime=three: expected a whole number from 1 to 1000"),
        ("fileReservedTime", "4_8", "setting fileReservedTime=4_8: expected a whole number from 1 to 1000"),
        ("fileReservedTime", "٤٨", "setting fileReservedTime=٤٨: expected a whole number from 1 to 1000"),
        ("fileReservedTime", "", "setting fileReservedTime=: expected a whole number from 1 to 1000"),
        ("diskMaxUsedSpaceRatio", "nan", "setting diskMaxUsedSpaceRatio=nan: expected a number from 10 to 95"),
        ("traceOn", "yes", "setting traceOn=yes: expected true or false"),
        ("flushDiskType", "SYNC", "setting flushDiskType=SYNC: expected one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("startTime", "9223372036854775808", "setting startTime=9223372036854775808: expected a whole number"),
        ("low", "-1", "setting low=-1: expected a whole number of 0 or more"),
        ("high", "101", "setting high=101: expected a whole number of 100 or less"),
        ("low", "50", "setting low=50: expected at most high=9"),
    ],
)
def test_invalid_value_is_rejected_with_key_value_and_range_and_changes_nothing(key: str, text: str, message: str) -> None:
    example = Example()
    with pytest.raises(SettingError) as caught:
        apply([example], {"traceOn": "false", "brokerIP1": "x", key: text})
    assert str(caught.value) == message
    assert example == Example()


def test_unknown_key_warns_with_the_nearest_name() -> None:
    assert apply([Example()], {"fileReserveTime": "48", "brokerip1": "x", "somethingElseEntirely": "1"}) == [
        "setting fileReserveTime is unknown and has no effect; did you mean fileReservedTime?",
        "setting brokerip1 is unknown and has no effect; did you mean brokerIP1?",
        "setting somethingElseEntirely is unknown and has no effect",
    ]


def test_apache_keys_without_effect_cause_no_warning() -> None:
    assert (
        apply([Example()], {"sendMessageThreadPoolNums": "16", "warmMapedFileEnable": "true", "serverSelectorThreads": "3"}) == []
    )


def test_key_declared_by_several_classes_is_assigned_to_each() -> None:
    first, second = Example(), Example()
    apply([first, second], {"fileReservedTime": "5"})
    assert (first.file_reserved_time, second.file_reserved_time) == (5, 5)


def test_change_accepts_runtime_settings_only_and_is_all_or_nothing() -> None:
    example = Example()
    change([example], {"fileReservedTime": "24", "traceOn": "false"})
    assert (example.file_reserved_time, example.trace_on) == (24, False)
    for values, message in [
        ({"fileReservedTime": "12", "brokerIP1": "x"}, "no change while running"),
        ({"fileReservedTime": "12", "traceon": "x"}, "did you mean traceOn"),
        ({"fileReservedTime": "12", "traceOn": "x"}, "true or false"),
        ({"fileReservedTime": "12", "low": "10"}, "at most high=9"),
    ]:
        with pytest.raises(SettingError, match=message):
            change([example], values)
        assert example.file_reserved_time == 24


def test_as_properties_is_sorted_and_can_be_applied_again() -> None:
    table = as_properties([Example()])
    assert list(table) == sorted(table)
    assert table["flushDiskType"] == "SYNC_FLUSH"
    assert table["traceOn"] == "true"
    assert table["brokerIP1"] == ""
    text = format_properties(table)
    again = Example()
    apply([again], parse_properties(text))
    assert again == Example()


@dataclass
class WithSecret:
    password: Secret | None = setting(None, "a password")


def test_secret_setting_is_not_shown_by_repr_and_errors() -> None:
    settings = WithSecret(password=Secret("hidden"))

    assert "hidden" not in repr(settings)
    with pytest.raises(SettingError) as raised:
        change([settings], {"password": "other"})
    assert "other" not in str(raised.value)


def test_secret_setting_is_parsed_but_never_shown() -> None:
    settings = WithSecret()
    assert as_properties([settings]) == {"password": ""}
    apply([settings], {"password": "open sesame"})
    assert settings.password == Secret("open sesame")
    assert settings.password.reveal() == "open sesame"
    assert as_properties([settings]) == {"password": "******"}
    assert "sesame" not in f"{settings!r} {settings.password} {settings.password!r}"
