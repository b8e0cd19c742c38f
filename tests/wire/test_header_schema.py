"""Header declarations: decoding and encoding rules, and the generated decoder against a plain implementation of the rules."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.wire.codes import RequestCode
from firearrow.wire.errors import HeaderError, ProtocolError
from firearrow.wire.header_schema import FieldSpec, Header, HeaderType, Long, field, request_code, request_fields
from firearrow.wire.headers.admin import DeleteSubscriptionGroupRequestHeader
from firearrow.wire.headers.client import (
    LitePullMessageRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from tests.wire.headers.registry import REQUEST_HEADERS, RESPONSE_HEADERS
from tests.wire.strategies import EXT_VALUE, I32, I64

ALL_HEADERS = sorted({*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}, key=lambda cls: cls.__name__)


class Sample(Header):
    text: str
    number: int
    wide: Long
    switch: bool
    maybe_text: str | None = None
    maybe_number: int | None = None
    maybe_wide: Long | None = None
    maybe_switch: bool | None = None
    is_force: bool = field(key="isForce", default=True)
    with_default: str = "x"
    renamed: int = field(key="newName", other="oldName", default=7)


GOOD = {"text": "t", "number": "1", "wide": "2", "switch": "true"}
GOOD_PULL = {
    "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32", "sysFlag": "0",
    "commitOffset": "0", "suspendTimeoutMillis": "0",
}  # fmt: skip


def decode_error(cls: type[Header], ext: dict[str, Any]) -> HeaderError:
    with pytest.raises(HeaderError) as caught:
        cls.decode(ext)
    return caught.value


# ---- the rules, one by one


def test_absent_fields_take_their_defaults() -> None:
    header = Sample.decode({**GOOD, "unknown": "ignored"})
    assert header == Sample(text="t", number=1, wide=2, switch=True)
    assert (header.is_force, header.with_default, header.renamed, header.maybe_switch) == (True, "x", 7, None)


def test_empty_text_and_null_are_the_same_as_absent_for_optional_fields() -> None:
    names = ("maybeText", "maybeNumber", "maybeWide", "maybeSwitch", "isForce", "withDefault", "newName")
    assert Sample.decode({**GOOD, **dict.fromkeys(names, "")}) == Sample.decode(GOOD)
    assert Sample.decode({**GOOD, **dict.fromkeys(names)}) == Sample.decode(GOOD)


def test_required_text_may_be_empty_but_required_number_may_not() -> None:
    assert Sample.decode({**GOOD, "text": ""}).text == ""
    assert decode_error(Sample, {**GOOD, "number": ""}).field == "number"
    assert decode_error(Sample, {**GOOD, "switch": ""}).field == "switch"


def test_raw_numbers_and_booleans_are_accepted() -> None:
    header = Sample.decode({"text": 5, "number": 1, "wide": 2, "switch": True, "maybeText": False, "isForce": False})
    assert header == Sample(text="5", number=1, wide=2, switch=True, maybe_text="false", is_force=False)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [("true", True), ("TRUE", True), ("True", True), (True, True), ("false", False), ("1", False), (1, False), ("yes", False)],
)
def test_bool_is_true_exactly_when_its_lower_case_text_is_true(sent: Any, meant: bool) -> None:
    assert Sample.decode({**GOOD, "switch": sent, "maybeSwitch": sent}).switch is meant
    assert Sample.decode({**GOOD, "maybeSwitch": sent}).maybe_switch is meant


@pytest.mark.parametrize(
    ("sent", "meant"), [("-1", -1), ("+5", 5), ("007", 7), (" 9 ", 9), (str(2**31 - 1), 2**31 - 1), (-(2**31), -(2**31))]
)
def test_accepted_forms_of_numbers(sent: Any, meant: int) -> None:
    header = Sample.decode({**GOOD, "number": sent, "wide": sent, "maybeNumber": sent, "maybeWide": sent})
    assert (header.number, header.wide, header.maybe_number, header.maybe_wide) == (meant, meant, meant, meant)


@pytest.mark.parametrize("sent", ["1_0", "1.0", 1.0, "1e3", "0x1", "one", "true", True, [1], {"a": 1}, "--1", "1,2", "9" * 5000])
@pytest.mark.parametrize("name", ["number", "wide", "maybeNumber", "maybeWide", "newName"])
def test_invalid_numbers_are_rejected(name: str, sent: Any) -> None:
    error = decode_error(Sample, {**GOOD, name: sent})
    assert (error.field, error.value) == (name, sent)
    assert "an integer of" in error.expected


def test_numbers_must_fit_the_declared_type() -> None:
    assert decode_error(Sample, {**GOOD, "number": str(2**31)}).expected == "an integer of 32 bits"
    assert decode_error(Sample, {**GOOD, "number": -(2**31) - 1}).field == "number"
    assert decode_error(Sample, {**GOOD, "wide": str(2**63)}).expected == "an integer of 64 bits"
    assert Sample.decode({**GOOD, "wide": str(-(2**63))}).wide == -(2**63)
    assert Sample.decode({**GOOD, "wide": str(2**63 - 1)}).wide == 2**63 - 1


def test_error_names_field_value_and_expectation_in_one_line() -> None:
    wrong = decode_error(Sample, {**GOOD, "number": "x"})
    assert str(wrong) == "Sample: the field number has the value 'x', expected an integer of 32 bits"
    missing = decode_error(Sample, {})
    assert str(missing) == "Sample: the field text is missing, expected text"
    assert missing.value is None
    assert len(str(decode_error(Sample, {**GOOD, "number": "x" * 10_000}))) < 250
    assert isinstance(missing, ProtocolError)


def test_second_key_is_used_when_the_first_is_absent() -> None:
    assert Sample.decode({**GOOD, "oldName": "3"}).renamed == 3
    assert Sample.decode({**GOOD, "newName": "", "oldName": "3"}).renamed == 3
    assert Sample.decode({**GOOD, "newName": "4", "oldName": "3"}).renamed == 4


def test_encoding_omits_none_and_writes_text_only() -> None:
    header = Sample(text="t", number=-1, wide=2, switch=False, maybe_switch=True)
    assert header.encode() == {
        "text": "t", "number": "-1", "wide": "2", "switch": "false", "maybeSwitch": "true", "isForce": "true", "withDefault": "x",
        "newName": "7", "oldName": "7",
    }  # fmt: skip


def test_default_of_a_field_with_omit_default_is_not_encoded() -> None:
    header = PullMessageRequestHeader.decode(GOOD_PULL)
    assert header.encode().keys().isdisjoint({"bulk", "subscription"})
    header.bulk, header.subscription = True, "*"
    assert (header.encode()["bulk"], header.encode()["subscription"]) == ("true", "*")


def test_field_with_two_keys_is_encoded_under_both() -> None:
    header = DeleteSubscriptionGroupRequestHeader(group_name="g", clean_offset=True)
    assert header.encode() == {"groupName": "g", "cleanOffset": "true", "removeOffset": "true"}


def test_subclass_has_the_fields_of_its_base_and_a_code_of_its_own() -> None:
    header = LitePullMessageRequestHeader.decode({**GOOD_PULL, "subscription": "*"})
    assert type(header) is LitePullMessageRequestHeader
    assert header.FIELDS == PullMessageRequestHeader.FIELDS
    assert (header.CODE, PullMessageRequestHeader.CODE) == (RequestCode.LITE_PULL_MESSAGE, RequestCode.PULL_MESSAGE)
    assert type(PullMessageRequestHeader.decode(GOOD_PULL)) is PullMessageRequestHeader


def test_request_is_a_header_or_a_bare_code() -> None:
    header = PullMessageRequestHeader.decode(GOOD_PULL)
    assert (request_code(header), request_fields(header)) == (11, GOOD_PULL | {"subVersion": "0"})
    assert (request_code(RequestCode.HEART_BEAT), request_fields(RequestCode.HEART_BEAT)) == (34, {})


def test_declaring_an_unknown_type_raises_type_error() -> None:
    with pytest.raises(TypeError, match="unsupported type float"):
        HeaderType("Wrong", (Header,), {"__annotations__": {"rate": "float"}})


# ---- the two keys of the send header


def test_send_header_is_decoded_with_long_and_one_letter_keys() -> None:
    header = SendMessageRequestHeaderV2(
        producer_group="p", topic="t", default_topic="TBW102", default_topic_queue_nums=4, queue_id=-1, sys_flag=769,
        born_timestamp=1794786595550, flag=123456, properties="A\x01b\x02", max_reconsume_times=16, bname="broker-a",
    )  # fmt: skip
    assert SendMessageRequestHeaderV2.decode(header.encode()) == header
    assert header.encode()["i"] == "A\x01b\x02"
    long_keys = SendMessageRequestHeader.decode(header.encode())
    assert long_keys.encode()["properties"] == "A\x01b\x02"
    assert SendMessageRequestHeaderV2.decode(long_keys.encode()) == header
    assert decode_error(SendMessageRequestHeader, {"b": "t"}).field == "a"
    assert decode_error(SendMessageRequestHeader, {"topic": "t"}).field == "producerGroup"
    assert decode_error(SendMessageRequestHeader, {}).field == "producerGroup"


# ---- against a plain implementation of the rules


def _expected(cls: type[Header], ext: dict[str, Any]) -> dict[str, Any] | str:
    """Return the values that a header should have, or the key of the invalid field."""
    short = any(spec.short for spec in cls.FIELDS) and ("a" in ext or "b" in ext)
    values = {}
    for spec in cls.FIELDS:
        key = (spec.short or spec.key) if short else spec.key
        raw = ext.get(key)
        if raw in (None, "") and spec.other:
            raw = ext.get(spec.other)
        if raw is None or (raw == "" and not (spec.required and spec.kind == "str")):
            if spec.required:
                return key
            values[spec.name] = spec.default
            continue
        value = _plain_value(spec, raw)
        if value is None:
            return key
        values[spec.name] = value
    return values


def _plain_value(spec: FieldSpec, raw: Any) -> Any:
    if not isinstance(raw, (str, int)):
        return None
    text = {True: "true", False: "false"}[raw] if isinstance(raw, bool) else str(raw)
    if spec.kind == "str":
        return text
    if spec.kind == "bool":
        return text.lower() == "true"
    limit = 2**31 if spec.kind == "int" else 2**63
    digits = text.strip(" \t\r\n")
    digits = digits[1:] if digits[:1] in ("+", "-") else digits
    if not (digits.isdecimal() and digits.isascii()) or len(text) > 20 or not -limit <= int(text) < limit:
        return None
    return int(text)


def _values(header: Header) -> dict[str, Any]:
    return {spec.name: getattr(header, spec.name) for spec in header.FIELDS}


@st.composite
def exts(draw: st.DrawFn, cls: type[Header]) -> dict[str, Any]:
    """Draw mostly valid values, with a few odd ones among them."""
    short = draw(st.booleans())
    ext: dict[str, Any] = {}
    for spec in cls.FIELDS:
        key = (spec.short if short else None) or spec.key
        right = {"str": st.text(max_size=8), "int": I32, "Long": I64, "bool": st.booleans()}[spec.kind].map(
            lambda value: str(value).lower() if isinstance(value, bool) else str(value)
        )
        kind = draw(st.sampled_from(("right",) * 12 + ("odd", "absent", "raw")))
        if kind == "right":
            ext[key] = draw(right)
        elif kind == "odd":
            ext[key] = draw(EXT_VALUE)
        elif kind == "raw":
            ext[key] = draw(st.one_of(I64, st.booleans()))
    return ext


@given(st.data())
@pytest.mark.parametrize("cls", [Sample, SendMessageRequestHeader, PullMessageRequestHeader], ids=lambda cls: cls.__name__)
def test_decoding_of_frequent_headers_follows_the_rules(cls: type[Header], data: st.DataObject) -> None:
    _check_decoding(cls, data.draw(exts(cls)))


@settings(max_examples=10)
@given(st.data())
@pytest.mark.parametrize("cls", ALL_HEADERS, ids=lambda cls: cls.__name__)
def test_decoding_follows_the_rules(cls: type[Header], data: st.DataObject) -> None:
    _check_decoding(cls, data.draw(exts(cls)))


def _check_decoding(cls: type[Header], ext: dict[str, Any]) -> None:
    got: dict[str, Any] | str
    try:
        got = _values(cls.decode(ext))
    except HeaderError as error:
        got = error.field
    assert got == _expected(cls, ext)


@given(st.dictionaries(st.one_of(st.text(max_size=8), st.sampled_from("abcdefghijklmn")), EXT_VALUE))
def test_any_ext_map_yields_a_header_or_header_error(ext: dict[str, Any]) -> None:
    for cls in (SendMessageRequestHeader, PullMessageRequestHeader):
        with suppress(HeaderError):
            cls.decode(ext)


@pytest.mark.parametrize("cls", ALL_HEADERS, ids=lambda cls: cls.__name__)
@settings(max_examples=10)
@given(st.data())
def test_encoded_header_decodes_to_itself(cls: type[Header], data: st.DataObject) -> None:
    drawn = {"str": st.text(min_size=1, max_size=8), "int": I32, "Long": I64, "bool": st.booleans()}
    make: Any = cls
    header = make(**{spec.name: data.draw(drawn[spec.kind]) for spec in cls.FIELDS})
    assert cls.decode(header.encode()) == header
