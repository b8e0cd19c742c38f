from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.config.fields import (
    SettingError,
    apply,
    as_properties,
    change,
    declared,
    format_properties,
    read_properties,
    setting,
)


class Flush(Enum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass
class Example:
    broker_ip1: str | None = setting(None, "advertised address")
    file_reserved_time: int = setting(72, "hours", low=1, high=1000, runtime=True)
    disk_max_used_space_ratio: float = setting(75.0, "percent", low=10, high=95, runtime=True)
    trace_on: bool = setting(True, runtime=True)
    flush_disk_type: Flush = setting(Flush.SYNC)  # noqa: RUF009 - the linter takes the enum member for a call
    broker_role: str = setting("ASYNC_MASTER", choices=("ASYNC_MASTER", "SLAVE"))
    check_crc: bool = setting(True, key="checkCRCOnRecover")
    start_time: int = setting(0)
    low: int = setting(1, low=0, runtime=True)
    high: int = setting(9, high=100, runtime=True)
    not_a_setting: list[int] = field(default_factory=list)

    def check(self) -> None:
        if self.low > self.high:
            raise SettingError("low", self.low, f"at most high={self.high}")


def test_keys_are_spelled_as_apache_spells_them() -> None:
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
def test_a_bad_value_names_key_value_and_range_and_changes_nothing(key: str, text: str, message: str) -> None:
    example = Example()
    with pytest.raises(SettingError) as caught:
        apply([example], {"traceOn": "false", "brokerIP1": "x", key: text})
    assert str(caught.value) == message
    assert example == Example()


def test_an_unknown_key_is_a_warning_with_the_nearest_name() -> None:
    assert apply([Example()], {"fileReserveTime": "48", "brokerip1": "x", "somethingElseEntirely": "1"}) == [
        "setting fileReserveTime is not known and has no effect; did you mean fileReservedTime?",
        "setting brokerip1 is not known and has no effect; did you mean brokerIP1?",
        "setting somethingElseEntirely is not known and has no effect",
    ]


def test_apaches_keys_without_a_meaning_here_are_no_cause_for_warnings() -> None:
    assert (
        apply([Example()], {"sendMessageThreadPoolNums": "16", "warmMapedFileEnable": "true", "serverSelectorThreads": "3"}) == []
    )


def test_a_key_of_several_classes_goes_to_each() -> None:
    first, second = Example(), Example()
    apply([first, second], {"fileReservedTime": "5"})
    assert (first.file_reserved_time, second.file_reserved_time) == (5, 5)


def test_run_time_changes_are_an_allow_list_and_all_or_nothing() -> None:
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


def test_settings_come_back_as_sorted_properties() -> None:
    table = as_properties([Example()])
    assert list(table) == sorted(table)
    assert table["flushDiskType"] == "SYNC_FLUSH"
    assert table["traceOn"] == "true"
    assert table["brokerIP1"] == ""
    text = format_properties(table)
    again = Example()
    apply([again], read_properties(text))
    assert again == Example()


PROPERTIES = r"""
# comment = no
  ! another comment
brokerName=broker-a
 brokerId = 0
namesrvAddr : 10.0.0.1:9876;10.0.0.2:9876
listenPort 10911
empty
emptyToo=
key\ with\:odd\=chars=v
path=C:\\store\\x
long = one, \
       two, \
       # not a comment
unicode=\u4e2d\u6587 caf\u00e9 \ud83d\ude00
tab=a\tb
keepsTrailingBlank=x\u0020
even\\=backslashes
twice=1
twice=2
last=continued \
"""


def test_java_properties_syntax() -> None:
    assert read_properties(PROPERTIES) == {
        "brokerName": "broker-a",
        "brokerId": "0",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "listenPort": "10911",
        "empty": "",
        "emptyToo": "",
        "key with:odd=chars": "v",
        "path": "C:\\store\\x",
        "long": "one, two, # not a comment",
        "unicode": "中文 café 😀",
        "tab": "a\tb",
        "keepsTrailingBlank": "x ",
        "even\\": "backslashes",
        "twice": "2",
        "last": "continued ",
    }


def test_line_ends_of_every_kind() -> None:
    assert read_properties("a=1\r\nb=2\rc=3\n\n\r\n") == {"a": "1", "b": "2", "c": "3"}


def test_a_broken_unicode_escape_is_an_error() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        read_properties(r"a=\u12g4")


@given(st.text())
def test_any_text_is_a_table_or_a_value_error(text: str) -> None:
    try:
        table = read_properties(text)
    except ValueError:
        return
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in table.items())


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if not c.isalnum() or ord(c) > 126 else c for c in text)


@given(st.dictionaries(st.text(st.characters(max_codepoint=0xD7FF)), st.text(st.characters(max_codepoint=0xD7FF))))
def test_what_was_escaped_comes_back(table: dict[str, str]) -> None:
    text = "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in table.items())
    assert read_properties(text) == table


@pytest.mark.parametrize("key", ["aclEnable", "authenticationEnabled", "authorizationEnabled"])
def test_a_protection_that_is_not_there_is_not_promised(key: str) -> None:
    (warning,) = apply([Example()], {key: "true"})
    assert key in warning
    assert "no effect" in warning
    assert apply([Example()], {key: "false"}) == []


@dataclass
class WithSecret:
    password: str | None = setting(None, "opens something", secret=True)


def test_a_secret_is_read_and_never_shown() -> None:
    settings = WithSecret()
    assert as_properties([settings]) == {"password": ""}
    apply([settings], {"password": "open sesame"})
    assert settings.password == "open sesame"
    assert as_properties([settings]) == {"password": "******"}
