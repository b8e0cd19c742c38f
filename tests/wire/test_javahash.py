from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.wire.javahash import hash_code, tags_code


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
def test_the_code_is_the_polynomial_over_utf_16_units_in_32_bits(text: str) -> None:
    raw = text.encode("utf-16-be")
    units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
    whole = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units)) % 2**32
    assert hash_code(text) == (whole - 2**32 if whole >= 2**31 else whole)
    assert tags_code(text) == hash_code(text)
