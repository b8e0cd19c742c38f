from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import batch, properties, record
from firearrow.wire.errors import ProtocolError
from tests.wire.captured import captured

NAMES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=10)
VALUES = st.text(st.characters(exclude_characters="\x02", codec="utf-8"), min_size=1, max_size=20)
# Bytes that are mostly separators and a few letters: the shapes that matter.
PIECES = (b"\x01", b"\x02", b"TAGS", b"TAG", b"S", b"KEYS", "é".encode(), b"\xff")
ODD_BYTES = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)


def test_with_and_without_c_of_ending_are_read() -> None:
    assert properties.parse(b"TAGS\x01TagA\x02KEYS\x01a b\x02") == {"TAGS": "TagA", "KEYS": "a b"}
    assert properties.parse("TAGS\x01TagA\x02KEYS\x01a b") == {"TAGS": "TagA", "KEYS": "a b"}
    assert properties.parse(b"") == {}


def test_incomplete_segments_are_ignored_and_the_last_duplicate_wins() -> None:
    assert properties.parse(b"\x02\x01x\x02a\x01\x02b\x02a\x011\x02a\x012\x02") == {"a": "2"}
    assert properties.parse(b"a\x01b\x01c") == {"a": "b\x01c"}


def test_find_matches_the_whole_name_only() -> None:
    raw = b"XTAGS\x011\x02TAGSX\x012\x02A\x01TAGS\x01no\x02TAGS\x013"
    assert properties.find(raw, b"TAGS") == b"3"
    assert properties.find(raw, b"XTAGS") == b"1"
    assert properties.find(raw, b"AGS") is None
    assert properties.find(b"TAGS\x01", b"TAGS") is None
    assert properties.find(b"TAGS\x01\x02", b"TAGS") is None
    assert properties.find(b"TAGS\x01a\x02TAGS\x01\x02", b"TAGS") == b"a"


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_map_round_trips(written: dict[str, str]) -> None:
    raw = properties.encode(written)
    assert properties.parse(raw) == written
    assert raw == b"" or raw.endswith(b"\x02")
    for name, value in written.items():
        assert properties.find(raw, name.encode()) == value.encode()


@given(st.one_of(st.binary(max_size=60), ODD_BYTES))
def test_any_bytes_yield_a_map_or_protocol_error_and_find_agrees(raw: bytes) -> None:
    found = {name: properties.find(raw, name.encode()) for name in ("TAGS", "TAG", "S", "KEYS", "é")}
    try:
        parsed = properties.parse(raw)
    except ProtocolError:
        return
    for name, value in found.items():
        assert (None if value is None else value.decode()) == parsed.get(name)


@pytest.mark.parametrize("wrong", [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02"}, {"": "b"}, {"a": ""}])
def test_property_that_would_not_round_trip_is_rejected(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="the property"):
        properties.encode(wrong)


def test_terminator_is_added_once() -> None:
    assert properties.with_terminator(b"a\x01b") == b"a\x01b\x02"
    assert properties.with_terminator(b"a\x01b\x02") == b"a\x01b\x02"
    assert properties.with_terminator(b"") == b""


def test_properties_of_captured_messages_round_trip() -> None:
    raws = []
    for sent in captured():
        if sent.kind == "response" and sent.request in (11, 12, 33, 361) and sent.body:
            raws += [each.properties for each in record.decode_all(sent.body)]
        if sent.kind != "response" and sent.request == 320:
            raws += [each for _, _, each in batch.split(sent.body)]
    assert len(raws) > 30
    for raw in raws:
        assert properties.encode(properties.parse(raw)) == properties.with_terminator(raw)
