"""Header declarations: how each kind of value is read, and that the fast decoder agrees with the rules written out plainly."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.wire.errors import HeaderError, ProtocolError
from firearrow.wire.header_schema import FieldSpec, Header, HeaderType, Long, field
from firearrow.wire.headers import REQUEST_HEADERS, RESPONSE_HEADERS
from firearrow.wire.headers.client import PullMessageRequestHeader, SendMessageRequestHeader
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


def refused(cls: type[Header], ext: dict[str, Any]) -> HeaderError:
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


def test_a_required_text_may_be_empty_but_a_required_number_may_not() -> None:
    assert Sample.decode({**GOOD, "text": ""}).text == ""
    assert refused(Sample, {**GOOD, "number": ""}).field == "number"
    assert refused(Sample, {**GOOD, "switch": ""}).field == "switch"


def test_raw_numbers_and_booleans_are_taken() -> None:
    header = Sample.decode({"text": 5, "number": 1, "wide": 2, "switch": True, "maybeText": False, "isForce": False})
    assert header == Sample(text="5", number=1, wide=2, switch=True, maybe_text="false", is_force=False)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [("true", True), ("TRUE", True), ("True", True), (True, True), ("false", False), ("1", False), (1, False), ("yes", False)],
)
def test_a_bool_is_true_exactly_when_its_lower_case_text_is_true(sent: Any, meant: bool) -> None:
    assert Sample.decode({**GOOD, "switch": sent, "maybeSwitch": sent}).switch is meant
    assert Sample.decode({**GOOD, "maybeSwitch": sent}).maybe_switch is meant


@pytest.mark.parametrize(
    ("sent", "meant"), [("-1", -1), ("+5", 5), ("007", 7), (" 9 ", 9), (str(2**31 - 1), 2**31 - 1), (-(2**31), -(2**31))]
)
def test_numbers_come_in_these_forms(sent: Any, meant: int) -> None:
    header = Sample.decode({**GOOD, "number": sent, "wide": sent, "maybeNumber": sent, "maybeWide": sent})
    assert (header.number, header.wide, header.maybe_number, header.maybe_wide) == (meant, meant, meant, meant)


@pytest.mark.parametrize("sent", ["1_0", "1.0", 1.0, "1e3", "0x1", "one", "true", True, [1], {"a": 1}, "--1", "1,2", "9" * 5000])
@pytest.mark.parametrize("name", ["number", "wide", "maybeNumber", "maybeWide", "newName"])
def test_these_are_no_numbers(name: str, sent: Any) -> None:
    error = refused(Sample, {**GOOD, name: sent})
    assert (error.field, error.value) == (name, sent)
    assert "an integer of" in error.expected


def test_ranges_are_those_of_the_declared_type() -> None:
    assert refused(Sample, {**GOOD, "number": str(2**31)}).expected == "an integer of 32 bits"
    assert refused(Sample, {**GOOD, "number": -(2**31) - 1}).field == "number"
    assert refused(Sample, {**GOOD, "wide": str(2**63)}).expected == "an integer of 64 bits"
    assert Sample.decode({**GOOD, "wide": str(-(2**63))}).wide == -(2**63)
    assert Sample.decode({**GOOD, "wide": str(2**63 - 1)}).wide == 2**63 - 1


def test_the_error_says_what_was_wrong_in_one_line() -> None:
    wrong = refused(Sample, {**GOOD, "number": "x"})
    assert str(wrong) == "Sample: the field number has the value 'x', expected an integer of 32 bits"
    missing = refused(Sample, {})
    assert str(missing) == "Sample: the field text is missing, expected text"
    assert missing.value is None
    assert len(str(refused(Sample, {**GOOD, "number": "x" * 10_000}))) < 250
    assert isinstance(missing, ProtocolError)


def test_a_second_name_is_looked_under_when_the_first_is_absent() -> None:
    assert Sample.decode({**GOOD, "oldName": "3"}).renamed == 3
    assert Sample.decode({**GOOD, "newName": "", "oldName": "3"}).renamed == 3
    assert Sample.decode({**GOOD, "newName": "4", "oldName": "3"}).renamed == 4


def test_encoding_leaves_none_out_and_writes_text_only() -> None:
    header = Sample(text="t", number=-1, wide=2, switch=False, maybe_switch=True)
    assert header.encode() == {
        "text": "t", "number": "-1", "wide": "2", "switch": "false", "maybeSwitch": "true", "isForce": "true", "withDefault": "x",
        "newName": "7",
    }  # fmt: skip


def test_a_declaration_of_an_unknown_type_is_an_error_of_ours() -> None:
    with pytest.raises(TypeError, match="the type float is none of"):
        HeaderType("Wrong", (Header,), {"__annotations__": {"rate": "float"}})


# ---- the two keys of the send header


def test_the_send_header_is_read_by_letters_or_by_names() -> None:
    header = SendMessageRequestHeader(
        producer_group="p", topic="t", default_topic="TBW102", default_topic_queue_nums=4, queue_id=-1, sys_flag=769,
        born_timestamp=1794786595550, flag=123456, properties="A\x01b\x02", max_reconsume_times=16, bname="broker-a",
    )  # fmt: skip
    assert SendMessageRequestHeader.decode(header.encode()) == header
    assert SendMessageRequestHeader.decode(header.encode_short()) == header
    assert header.encode_short()["i"] == "A\x01b\x02"
    assert refused(SendMessageRequestHeader, {"b": "t"}).field == "a"
    assert refused(SendMessageRequestHeader, {"topic": "t"}).field == "producerGroup"
    assert refused(SendMessageRequestHeader, {}).field == "producerGroup"


# ---- against the rules written out plainly


def _plainly(cls: type[Header], ext: dict[str, Any]) -> dict[str, Any] | str:
    """The values a header should have, or the key of the field that is wrong."""
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
    """Mostly right values with something odd among them."""
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
def test_decoding_of_the_usual_headers_follows_the_rules(cls: type[Header], data: st.DataObject) -> None:
    _decode_both_ways(cls, data.draw(exts(cls)))


@settings(max_examples=10)
@given(st.data())
@pytest.mark.parametrize("cls", ALL_HEADERS, ids=lambda cls: cls.__name__)
def test_decoding_follows_the_rules(cls: type[Header], data: st.DataObject) -> None:
    _decode_both_ways(cls, data.draw(exts(cls)))


def _decode_both_ways(cls: type[Header], ext: dict[str, Any]) -> None:
    got: dict[str, Any] | str
    try:
        got = _values(cls.decode(ext))
    except HeaderError as error:
        got = error.field
    assert got == _plainly(cls, ext)


@given(st.dictionaries(st.one_of(st.text(max_size=8), st.sampled_from("abcdefghijklmn")), EXT_VALUE))
def test_any_ext_map_gives_a_header_or_a_header_error(ext: dict[str, Any]) -> None:
    for cls in (SendMessageRequestHeader, PullMessageRequestHeader):
        with suppress(HeaderError):
            cls.decode(ext)


@pytest.mark.parametrize("cls", ALL_HEADERS, ids=lambda cls: cls.__name__)
@settings(max_examples=10)
@given(st.data())
def test_what_a_header_encodes_it_decodes_again(cls: type[Header], data: st.DataObject) -> None:
    drawn = {"str": st.text(min_size=1, max_size=8), "int": I32, "Long": I64, "bool": st.booleans()}
    make: Any = cls
    header = make(**{spec.name: data.draw(drawn[spec.kind]) for spec in cls.FIELDS})
    assert cls.decode(header.encode()) == header
    assert cls.decode(header.encode_short()) == header
