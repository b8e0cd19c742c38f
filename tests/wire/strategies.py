"""Hypothesis strategies for the tests of `wire`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=40)
# What a peer may put where text is expected: numbers, booleans, nothing, and things that belong nowhere.
NUMBER_TEXT = st.one_of(
    I64.map(str), st.sampled_from(("", " 7", "+7", "-0", "007", "7_0", "1e3", "0x7", "1,2", "[1", "2]", "true", "٣"))
)
EXT_VALUE = st.one_of(
    TEXT, NUMBER_TEXT, st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.integers(), max_size=2)
)


def json_values(max_leaves: int = 12) -> st.SearchStrategy[Any]:
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXT
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
        max_leaves=max_leaves,
    )
