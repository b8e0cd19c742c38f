from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire import properties
from firearrow.wire.java_hash import hash_code, tags_code, tags_code_of


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("polygenelubricants", -2147483648),
        ("订单", 1129459),
        ("\U0001f600", 1772899),
    ],
)
def test_codes_known_from_java(text: str, code: int) -> None:
    assert hash_code(text) == code
    assert tags_code(text) == code


@given(st.text(max_size=300))
def test_hash_code_is_the_polynomial_over_utf_16_units_in_32_bits(text: str) -> None:
    raw = text.encode("utf-16-be")
    units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
    whole = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units)) % 2**32
    assert hash_code(text) == (whole - 2**32 if whole >= 2**31 else whole)
    assert tags_code(text) == hash_code(text)


@pytest.mark.parametrize(
    ("raw", "tags"),
    [
        (b"TAGS\x01new\x02", "new"),
        (b"KEYS\x01k\x02TAGS\x01new\x02WAIT\x01true\x02", "new"),
        (b"KEYS\x01k\x02TAGS\x01new", "new"),
        (b"TAGS\x01old\x02TAGS\x01new\x02", "new"),
        (b"TAGS\x01new\x02MYTAGS\x01mine\x02", "new"),
        (b"MYTAGS\x01mine\x02", ""),
        (b"TAGS\x01new\x02TAGS\x01\x02", "new"),
        (b"KEYS\x01k\x02", ""),
        (b"", ""),
        ("TAGS\x01\u672c\x02".encode(), "\u672c"),
    ],
)
def test_tags_code_of_a_properties_block(raw: bytes, tags: str) -> None:
    for _ in range(2):  # the second time from the cache
        assert tags_code_of(raw) == (hash_code(tags) if tags else 0)
        assert (properties.find(raw, b"TAGS") or b"").decode() == tags
